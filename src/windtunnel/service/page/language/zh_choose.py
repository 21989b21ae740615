"""Chinese words of the section `choose`."""

WORDS = {
    "choose.title": "选择",
    "choose.about": "找到最好的并行方案及其费用。",
}
