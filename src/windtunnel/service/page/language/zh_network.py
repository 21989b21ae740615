"""Chinese words of the section `network`."""

WORDS = {
    "network.title": "网络",
    "network.about": "网络拓扑、链路与集合通信。",
}
