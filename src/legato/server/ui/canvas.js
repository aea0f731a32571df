// A canvas as large as the page shows it, in device pixels. Owns size and redrawing; draws nothing itself.

import { onColours } from "./theme.js";

/** Call `draw(context, width, height)` once per frame at most, whenever `request()` was called or the size changed. */
export function fitted(canvas, draw) {
  let pending = false;
  const paint = () => {
    pending = false;
    const { clientWidth: width, clientHeight: height } = canvas;
    if (!width || !height) return;
    const ratio = devicePixelRatio || 1;
    if (canvas.width !== Math.round(width * ratio) || canvas.height !== Math.round(height * ratio)) {
      canvas.width = Math.round(width * ratio);
      canvas.height = Math.round(height * ratio);
    }
    const context = canvas.getContext("2d");
    context.setTransform(ratio, 0, 0, ratio, 0, 0);
    context.clearRect(0, 0, width, height);
    draw(context, width, height);
  };
  const request = () => {
    if (pending) return;
    pending = true;
    requestAnimationFrame(paint);
  };
  new ResizeObserver(request).observe(canvas);
  onColours(request);
  return request;
}
