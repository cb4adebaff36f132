"""What isolation costs here, measured side by side with doing without this library: see README.md."""
