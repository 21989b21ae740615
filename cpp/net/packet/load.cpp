#include "net/packet/load.h"

#include <algorithm>
#include <cmath>
#include <utility>

namespace wt::net::packet {

void LinkLoad::add_bins(const LinkLoad& of, Time begin) {
  const Time length = Time{1} << of.bytes_.shift();
  bytes_.lengthen(of.bytes_.shift());
  const std::vector<std::int64_t>& bytes = of.bytes_.values();
  if (!bytes.empty()) static_cast<void>(bytes_.at(begin + length * static_cast<Time>(bytes.size()) - 1));
  Time at = begin;
  for (std::size_t i = 0; i < bytes.size(); ++i, at += length) {  // a bin of the episode lies in one of the step or in two
    if (bytes[i] == 0) continue;
    const Time edge = ((at >> bytes_.shift()) + 1) << bytes_.shift();
    const auto before = edge >= at + length
                            ? bytes[i]
                            : static_cast<std::int64_t>(static_cast<double>(bytes[i]) * static_cast<double>(edge - at) /
                                                        static_cast<double>(length));
    bytes_.at(at) += before;
    if (before != bytes[i]) bytes_.at(edge) += bytes[i] - before;
  }
  const Time each = Time{1} << of.queue_.shift();
  queue_.lengthen(of.queue_.shift());
  at = begin;
  for (const std::int64_t most : of.queue_.values()) {
    if (most > 0) {
      for (const Time t : {at + each - 1, at}) queue_.at(t) = std::max(queue_.at(t), most);
    }
    at += each;
  }
}

Loads loads_of(std::span<const LinkLoad> links) {
  Loads out;
  const auto bytes = common(links, [](const LinkLoad& l) -> const auto& { return l.bytes(); });
  const auto queue = common(links, [](const LinkLoad& l) -> const auto& { return l.queue(); });
  const int shift = std::max(bytes.first, queue.first);
  const auto fit = [&](const std::pair<int, std::size_t>& of) {
    const std::size_t step = std::size_t{1} << (shift - of.first);
    return (of.second + step - 1) / step;
  };
  out.bytes.width = out.queue.width = std::ldexp(1e-12, shift);
  out.bytes.bins = out.queue.bins = std::max(fit(bytes), fit(queue));
  for (std::size_t l = 0; l < links.size(); ++l) {
    if (links[l].empty()) continue;
    out.link.push_back(static_cast<std::int32_t>(l));
    out.bytes.add(links[l].bytes(), shift);
    out.queue.add(links[l].queue(), shift);
    std::vector<std::pair<std::int32_t, std::int64_t>> tags = links[l].tags();
    std::ranges::sort(tags);
    for (const auto& [tag, sent] : tags) {
      out.tag_link.push_back(static_cast<std::int32_t>(l));
      out.tag.push_back(tag);
      out.tag_bytes.push_back(sent);
    }
  }
  return out;
}

}  // namespace wt::net::packet
