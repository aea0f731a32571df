// The reasons why a step ran as less than a full graph, in plain words; the codes are those of the step records.

export const REASONS = {
  disabled_by_user: "The graph policy gives this kind of batch no better mode.",
  backend_level: "The attention backend cannot do this inside a full graph.",
  backend_declined: "The attention backend can in general, but not for this batch.",
  batch_too_large: "No captured size is large enough.",
  width_mismatch: "The requests have a query length for which nothing was captured.",
  sampler_variant: "No graph holds the sampler that this batch needs; it sampled after the graph.",
  guided_output: "Which tokens a guided request may have is known once its last one is read; it sampled after the graph.",
  capture_failed: "The graph could not be captured; it is out of the table.",
  canary_failed: "The graph's replay differed from the eager result; it is out of the table.",
  stale_epoch: "A buffer moved after the capture.",
  feature_incompatible: "A request asks for what only an eager step gives, such as prompt log-probabilities.",
};
