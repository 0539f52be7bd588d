"""Pages for a browser: finished runs as one HTML file, and one that computes as sliders
move.

The page knows manifests and tables, never experiments: axes and lines come from the
columns.
"""
