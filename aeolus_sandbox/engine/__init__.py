"""The container engine: what we ask of one (`base`), and Docker (`docker`, and `images` for building)."""
