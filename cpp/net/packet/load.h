// What a link carries over time and for whom, and how long its queue is; counted only if asked for.
#pragma once

#include <cstdint>
#include <span>
#include <unordered_map>
#include <utility>
#include <vector>

#include "net/bins.h"
#include "net/packet/control.h"

namespace wt::net::packet {

class LinkLoad {
 public:
  static constexpr std::int32_t kNobody = -1;  // pauses and credits are for no lane

  // A frame whose service begins. Times of a link never fall.
  void sent(Time at, std::int64_t bytes, std::int32_t tag) {
    bytes_.at(at) += bytes;
    tagged(tag) += bytes;
  }
  // From now on so many bytes wait; until then as many as before.
  void waits(Time at, std::int64_t bytes) {
    if (level_ > 0) {
      static_cast<void>(queue_.at(at));
      const int shift = queue_.shift();
      for (Time bin = (since_ >> shift) + 1; bin <= at >> shift; ++bin) longest(bin << shift, level_);
    }
    if (bytes > 0) longest(at, bytes);
    level_ = bytes;
    since_ = at;
  }
  // Another one's, `times` over, that began at `begin` of this one's time: an episode within a step.
  void add_bins(const LinkLoad& of, Time begin);
  void add_tags(const LinkLoad& of, std::int64_t times) {
    for (const auto& [tag, bytes] : of.tags_) tagged(tag) += bytes * times;
  }
  // Longer bins, of up to 2^shift picoseconds.
  void lengthen(int shift) {
    bytes_.lengthen(shift);
    queue_.lengthen(shift);
  }

  [[nodiscard]] bool empty() const { return bytes_.values().empty(); }
  [[nodiscard]] const Bins<std::int64_t, Sum>& bytes() const { return bytes_; }
  [[nodiscard]] const Bins<std::int64_t, Most>& queue() const { return queue_; }
  [[nodiscard]] const std::vector<std::pair<std::int32_t, std::int64_t>>& tags() const { return tags_; }

 private:
  static constexpr std::size_t kFew = 8;

  std::int64_t& tagged(std::int32_t tag) {
    if (last_ < tags_.size() && tags_[last_].first == tag) return tags_[last_].second;
    const std::size_t count = tags_.size();
    if (count <= kFew) {
      for (last_ = 0; last_ < count && tags_[last_].first != tag;) ++last_;
    } else {
      if (place_.empty())
        for (std::size_t i = 0; i < count; ++i) place_[tags_[i].first] = i;
      last_ = place_.try_emplace(tag, count).first->second;
    }
    if (last_ == count) tags_.emplace_back(tag, 0);
    return tags_[last_].second;
  }
  void longest(Time at, std::int64_t bytes) {
    std::int64_t& most = queue_.at(at);
    most = std::max(most, bytes);
  }

  Bins<std::int64_t, Sum> bytes_;
  Bins<std::int64_t, Most> queue_;                           // most that waited
  std::vector<std::pair<std::int32_t, std::int64_t>> tags_;  // and bytes
  std::size_t last_ = 0;                                     // the one that sent before
  std::unordered_map<std::int32_t, std::size_t> place_;      // of each, where they are many
  Time since_ = 0;
  std::int64_t level_ = 0;
};

struct Loads {  // of all links that carried something
  std::vector<std::int32_t> link;
  Series<std::int64_t> bytes, queue;        // a row for each
  std::vector<std::int32_t> tag_link, tag;  // rows: link, tag,
  std::vector<std::int64_t> tag_bytes;      // and what it sent there
};

[[nodiscard]] Loads loads_of(std::span<const LinkLoad> links);

}  // namespace wt::net::packet
