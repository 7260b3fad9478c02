"""Reward to gradient coefficient to loss: one short file per method.

Torch-free: `algorist.objective.config` (what a recipe may say) and `algorist.objective.describe` (formulas in words).
With torch: `algorist.objective.registry.METHODS` (the methods themselves), `spec` (what they take and give),
`advantage`, `kl`, `ratio`, `reduce`, `shaping` (the shared pieces).
"""
