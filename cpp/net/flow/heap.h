// A heap of ids by time whose entries can be moved: four children a node, so that a step down reads one cache line.
// Equal times come out by id, so the order never depends on history.
#pragma once

#include <cstddef>
#include <cstdint>
#include <utility>
#include <vector>

namespace wt::net::flow {

class TimeHeap {
 public:
  struct Entry {
    double time;
    std::int32_t id;
  };

  explicit TimeHeap(std::size_t ids) : place_(ids, kAbsent) {}

  [[nodiscard]] bool empty() const { return heap_.empty(); }
  [[nodiscard]] std::size_t size() const { return heap_.size(); }
  [[nodiscard]] const Entry& top() const { return heap_.front(); }

  // Enters or moves an id.
  void set(std::int32_t id, double time) {
    std::size_t at = static_cast<std::size_t>(place_[static_cast<std::size_t>(id)]);
    if (place_[static_cast<std::size_t>(id)] == kAbsent) {
      at = heap_.size();
      heap_.push_back({time, id});
    }
    const Entry entry{time, id};
    if (!up(at, entry)) down(at, entry);
  }

  void erase(std::int32_t id) {
    const std::int32_t at = place_[static_cast<std::size_t>(id)];
    if (at == kAbsent) return;
    place_[static_cast<std::size_t>(id)] = kAbsent;
    const Entry last = heap_.back();
    heap_.pop_back();
    if (static_cast<std::size_t>(at) == heap_.size()) return;
    if (!up(static_cast<std::size_t>(at), last)) down(static_cast<std::size_t>(at), last);
  }

  // For many at once: put() all, then order() once.
  void put(std::int32_t id, double time) {
    std::int32_t& at = place_[static_cast<std::size_t>(id)];
    if (at == kAbsent) {
      at = static_cast<std::int32_t>(heap_.size());
      heap_.push_back({time, id});
    } else {
      heap_[static_cast<std::size_t>(at)].time = time;
    }
  }
  void order() {
    for (std::size_t at = heap_.size() / kWays + 1; at-- > 0;)
      if (at < heap_.size()) down(at, heap_[at]);
  }

 private:
  static constexpr std::int32_t kAbsent = -1;
  static constexpr std::size_t kWays = 4;

  static bool before(const Entry& a, const Entry& b) { return a.time < b.time || (a.time == b.time && a.id < b.id); }

  void settle(std::size_t at, const Entry& entry) {
    heap_[at] = entry;
    place_[static_cast<std::size_t>(entry.id)] = static_cast<std::int32_t>(at);
  }
  // True if the entry has found its place on the way up.
  bool up(std::size_t at, const Entry& entry) {
    const std::size_t from = at;
    while (at > 0 && before(entry, heap_[(at - 1) / kWays])) {
      settle(at, heap_[(at - 1) / kWays]);
      at = (at - 1) / kWays;
    }
    if (at == from) return false;
    settle(at, entry);
    return true;
  }
  void down(std::size_t at, const Entry entry) {
    for (;;) {
      const std::size_t first = at * kWays + 1;
      if (first >= heap_.size()) break;
      std::size_t least = first;
      for (std::size_t c = first + 1; c < first + kWays && c < heap_.size(); ++c)
        if (before(heap_[c], heap_[least])) least = c;
      if (!before(heap_[least], entry)) break;
      settle(at, heap_[least]);
      at = least;
    }
    settle(at, entry);
  }

  std::vector<Entry> heap_;
  std::vector<std::int32_t> place_;
};

}  // namespace wt::net::flow
