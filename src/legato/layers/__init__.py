"""The parts that models share: linear, norm, rotary embedding, MLP."""
