"""Charts as SVG, drawn here on the server: no script, no library, nothing that a CSP forbids.

A chart is as wide as its place and of a fixed height. Its shapes live in an inner SVG of 100 by 100
that is stretched, its words in the outer one, where places are per cent, so they never are. Colours
and strokes are classes of the style sheet, for both themes. Every column bears a `<title>`, which
browsers show as a tooltip; beside every chart the page has the same figures as a table.
"""
