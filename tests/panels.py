"""What every panel of a figure has to have."""

from matplotlib.figure import Figure

# Inches below which nobody reads a panel.
SMALLEST_PANEL = 0.55


def check_panels(figure: Figure) -> None:
    """Fail where a panel of a figure that is laid out is empty or too small to be read."""
    for ax in figure.axes:
        if not ax.get_visible() or not ax.axison:
            continue
        name = ax.get_title(loc="left") or ax.get_title() or ax.get_ylabel()
        is_used = ax.has_data() or ax.texts or ax.artists
        assert is_used, f"an empty panel in '{figure.get_suptitle()}' {name}"

        # The scale of colours at the side of a panel is narrow.
        is_scale = ax.get_label() == "<colorbar>"
        box = ax.get_window_extent().transformed(figure.dpi_scale_trans.inverted())
        if not is_scale:
            assert min(box.width, box.height) >= SMALLEST_PANEL, (name, box.size)
