// Events in the order of (time, id): a calendar of short buckets for what is near and a heap for what is far.
//
// An id says what happens and to whom, and is the same however a run is cut into partitions; so the order of events at a node never
// depends on partitions or threads. Buckets are lists of short rows in one pool; a bucket is sorted when its time has come.
#pragma once

#include <algorithm>
#include <array>
#include <bit>
#include <cstdint>
#include <functional>
#include <utility>
#include <vector>

#include "net/packet/frame.h"

namespace wt::net::packet {

class Wheel {
 public:
  // Most events should be less than `span` ahead of the clock.
  explicit Wheel(Time span) {
    shift_ = 6;
    while (shift_ < kMaxShift && (Time{kBuckets} << shift_) < span) ++shift_;
    first_.fill(kNone);
    set_bucket(0);
  }

  void insert(Time time, std::uint64_t id) {
    if (time < end_) [[unlikely]] {
      insert_now(time, id);
      return;
    }
    const Time bucket = time >> shift_;
    if (bucket - (base_ >> shift_) >= kBuckets) [[unlikely]] {
      far_.push_back({time, id});
      std::push_heap(far_.begin(), far_.end(), std::greater<>());
      return;
    }
    const auto b = static_cast<std::size_t>(bucket & (kBuckets - 1));
    std::uint32_t node = first_[b];
    if (node == kNone || pool_[node].count == pool_[node].keys.size()) {
      const std::uint32_t behind = node;
      node = free_;
      if (node == kNone) {
        node = static_cast<std::uint32_t>(pool_.size());
        pool_.emplace_back();
      } else {
        free_ = pool_[node].next;
      }
      pool_[node].next = behind;
      pool_[node].count = 0;
      used_[b / 64] |= std::uint64_t{1} << (b % 64);
      first_[b] = node;
    }
    Node& n = pool_[node];
    n.keys[n.count++] = key(time, id);
  }

  // Takes the next event if its time is below `limit`.
  bool next(Time limit, Time& time, std::uint64_t& id) {
    while (at_ == now_.size()) {
      const Time bucket = next_bucket();
      if (bucket == kForever || (bucket << shift_) >= limit) return false;
      open(bucket);
    }
    const std::uint64_t k = now_[at_];
    const Time t = base_ + static_cast<Time>(k >> kIdBits);
    if (t >= limit) return false;
    ++at_;
    time = t;
    id = k & kIdMask;
    return true;
  }

  // Id of an event that will soon be next, or 0 if none is known: for prefetching.
  [[nodiscard]] std::uint64_t ahead(std::size_t n) const { return at_ + n < now_.size() ? now_[at_ + n] & kIdMask : 0; }

  // No event is sooner than this; nothing is opened for it.
  [[nodiscard]] Time not_before() const {
    if (at_ < now_.size()) return base_ + static_cast<Time>(now_[at_] >> kIdBits);
    const Time bucket = next_bucket();
    return bucket == kForever ? kForever : bucket << shift_;
  }

  // Time of the next event, kForever if there is none.
  [[nodiscard]] Time peek() {
    while (at_ == now_.size()) {
      const Time bucket = next_bucket();
      if (bucket == kForever) return kForever;
      open(bucket);
    }
    return base_ + static_cast<Time>(now_[at_] >> kIdBits);
  }

  static constexpr int kIdBits = 44;

 private:
  static constexpr Time kBuckets = 4096;
  static constexpr int kMaxShift = 64 - kIdBits;
  static constexpr std::uint64_t kIdMask = (std::uint64_t{1} << kIdBits) - 1;
  static constexpr std::uint32_t kNone = UINT32_MAX;

  struct alignas(64) Node {  // a line of the cache
    std::uint32_t next = kNone, count = 0;
    std::array<std::uint64_t, 7> keys{};
  };
  struct Far {
    Time time;
    std::uint64_t id;
    bool operator>(const Far& o) const { return time != o.time ? time > o.time : id > o.id; }
  };

  [[nodiscard]] std::uint64_t key(Time time, std::uint64_t id) const {
    return (static_cast<std::uint64_t>(time & ((Time{1} << shift_) - 1)) << kIdBits) | id;
  }
  void set_bucket(Time bucket) {
    base_ = bucket << shift_;
    end_ = base_ + (Time{1} << shift_);
  }
  void insert_now(Time time, std::uint64_t id) {
    // an event below the open bucket can only come from a mailbox into a part whose clock stands before it
    if (time < base_) reopen(time);
    const std::uint64_t k = key(time, id);
    now_.insert(std::upper_bound(now_.begin() + static_cast<std::ptrdiff_t>(at_), now_.end(), k), k);
  }
  // Puts what the open bucket still holds back and opens the bucket of `time`.
  void reopen(Time time) {
    for (std::size_t i = at_; i < now_.size(); ++i) {
      far_.push_back({base_ + static_cast<Time>(now_[i] >> kIdBits), now_[i] & kIdMask});
      std::push_heap(far_.begin(), far_.end(), std::greater<>());
    }
    // buckets of the wheel that would now lie beyond its span go to the heap as well
    const Time bucket = time >> shift_;
    const Time last = base_ >> shift_;
    for (Time b = std::max(last, bucket + kBuckets); b < last + kBuckets; ++b)
      take(b, [&](Time t, std::uint64_t id) {
        far_.push_back({t, id});
        std::push_heap(far_.begin(), far_.end(), std::greater<>());
      });
    now_.clear();
    at_ = 0;
    set_bucket(bucket);
  }
  [[nodiscard]] Time next_bucket() const {
    Time found = kForever;
    const Time here = base_ >> shift_;
    const auto start = static_cast<std::size_t>((here + 1) & (kBuckets - 1));
    // the words after `start`, then round to it again
    for (std::size_t n = 0; n <= kWords; ++n) {
      const std::size_t w = (start / 64 + n) % kWords;
      std::uint64_t bits = used_[w];
      if (n == 0) bits &= ~std::uint64_t{0} << (start % 64);
      if (n == kWords) bits &= (std::uint64_t{1} << (start % 64)) - 1;
      if (bits == 0) continue;
      const auto b = static_cast<Time>(w * 64 + static_cast<std::size_t>(std::countr_zero(bits)));
      found = here + 1 + ((b - static_cast<Time>(start)) & (kBuckets - 1));
      break;
    }
    if (!far_.empty()) found = std::min(found, far_.front().time >> shift_);
    return found;
  }
  template <class Sink>
  void take(Time bucket, Sink&& sink) {
    const auto b = static_cast<std::size_t>(bucket & (kBuckets - 1));
    const Time base = bucket << shift_;
    for (std::uint32_t node = first_[b]; node != kNone;) {
      Node& n = pool_[node];
      for (std::uint32_t i = 0; i < n.count; ++i) sink(base + static_cast<Time>(n.keys[i] >> kIdBits), n.keys[i] & kIdMask);
      free_ = std::exchange(node, std::exchange(n.next, free_));
    }
    first_[b] = kNone;
    used_[b / 64] &= ~(std::uint64_t{1} << (b % 64));
  }
  void open(Time bucket) {
    const bool near = bucket - (base_ >> shift_) < kBuckets;
    set_bucket(bucket);
    now_.clear();
    at_ = 0;
    if (near) take(bucket, [&](Time t, std::uint64_t id) { now_.push_back(key(t, id)); });
    while (!far_.empty() && far_.front().time < end_) {
      now_.push_back(key(far_.front().time, far_.front().id));
      std::pop_heap(far_.begin(), far_.end(), std::greater<>());
      far_.pop_back();
    }
    if (now_.size() > 24) {
      std::sort(now_.begin(), now_.end());
      return;
    }
    for (std::size_t i = 1; i < now_.size(); ++i) {
      const std::uint64_t k = now_[i];
      std::size_t j = i;
      for (; j > 0 && now_[j - 1] > k; --j) now_[j] = now_[j - 1];
      now_[j] = k;
    }
  }

  static constexpr std::size_t kWords = static_cast<std::size_t>(kBuckets) / 64;
  int shift_ = 0;
  Time base_ = 0, end_ = 0;  // of the open bucket
  std::vector<std::uint64_t> now_;
  std::size_t at_ = 0;
  std::array<std::uint32_t, static_cast<std::size_t>(kBuckets)> first_{};
  std::array<std::uint64_t, kWords> used_{};
  std::vector<Node> pool_;
  std::uint32_t free_ = kNone;
  std::vector<Far> far_;
};

}  // namespace wt::net::packet
