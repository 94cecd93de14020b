"""One module per row of Lakeshore's own. `measure(given)` is one repetition: {key: figure}."""
