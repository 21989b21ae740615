"""Charts of the page: one function a chart, from data to the options of ECharts. They know no page and no door."""
