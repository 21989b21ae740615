// A packet in flight, and the ring of packets of each direction of a cable.
#pragma once

#include <algorithm>
#include <array>
#include <bit>
#include <cstdint>
#include <vector>

#include "net/packet/control.h"
#include "net/packet/pages.h"

namespace wt::net::packet {

inline constexpr Time kForever = INT64_MAX;

// Division, so that whole picoseconds come back as the number that was given.
[[nodiscard]] inline double seconds(Time t) { return static_cast<double>(t) / 1e12; }

enum class Kind : std::uint8_t { kData, kAck, kNack, kNotify, kPause, kResume, kCredit };

inline constexpr std::uint8_t kMarked = 1;  // congestion experienced (data), or echoed (ACK)

// 24 bytes, moved by copy. Control frames (all kinds but data) overtake data at every port and take no buffer.
struct Frame {
  std::uint32_t pair = 0;
  std::uint32_t seq = 0;    // data: number of the packet; ACK, NACK: everything below has arrived
  std::uint32_t hop = 0;    // index of the link it is on in World::way; control frames walk it backwards
  std::int32_t other = -1;  // data: link that it came over, -1 at its source; ACK: the packet that caused it; credit: bytes
  std::uint32_t stamp = 0;  // when its packet left, in units of 1024 ps, modulo 2^32; or the number of its telemetry record
  std::uint16_t size = 0;   // bytes on the wire
  std::uint8_t left = 0;    // data: links still to go after this one
  Kind kind : 4 = Kind::kData;
  std::uint8_t flags : 4 = 0;
};
static_assert(sizeof(Frame) == 24);

// `time`: when it joined the queue while it waits; when it arrives at the far end once its service has begun.
struct Slot {
  Time time;
  Frame frame;
};
static_assert(sizeof(Slot) == 32);

// Memory for the rings of one partition: powers of two of slots, used again unless someone else may still read them.
class SlotPool {
 public:
  explicit SlotPool(Pages& pages) : pages_(pages) {}
  [[nodiscard]] Slot* take(std::uint32_t capacity) {
    std::vector<Slot*>& free = free_[static_cast<std::size_t>(std::countr_zero(capacity))];
    if (!free.empty()) {
      Slot* at = free.back();
      free.pop_back();
      return at;
    }
    const std::size_t bytes = capacity * sizeof(Slot);
    if (left_ < bytes) {
      piece_ = std::min<std::size_t>(2 * piece_, std::size_t{1} << 16);
      left_ = std::max(bytes, piece_);
      at_ = pages_.take(left_);
    }
    Slot* at = new (at_) Slot[capacity];
    at_ += bytes;
    left_ -= bytes;
    return at;
  }
  void give(Slot* at, std::uint32_t capacity) { free_[static_cast<std::size_t>(std::countr_zero(capacity))].push_back(at); }

 private:
  Pages& pages_;
  std::byte* at_ = nullptr;
  std::size_t left_ = 0, piece_ = 1024;
  std::array<std::vector<Slot*>, 32> free_;  // by the logarithm of their capacity
};

// head..sent are on the wire, sent..tail wait. Indices run freely; memory grows by doubling.
class Ring {
 public:
  [[nodiscard]] bool on_wire() const { return head != sent; }
  [[nodiscard]] bool waiting() const { return sent != tail; }
  [[nodiscard]] std::uint32_t size() const { return tail - head; }
  Slot& operator[](std::uint32_t i) { return slots_[i & mask_]; }
  const Slot& operator[](std::uint32_t i) const { return slots_[i & mask_]; }

  // `shared`: another partition reads what is on the wire, so memory that is left is not used again.
  void push(Time time, const Frame& frame, SlotPool& pool, bool shared) {
    if (slots_ == nullptr || tail - head > mask_) [[unlikely]]
      grow(pool, shared);
    Slot& slot = slots_[tail++ & mask_];
    slot.time = time;
    slot.frame = frame;
  }

  [[nodiscard]] const Slot* slots() const { return slots_; }
  [[nodiscard]] std::uint32_t mask() const { return mask_; }

  std::uint32_t head = 0;
  std::uint32_t sent = 0;
  std::uint32_t tail = 0;

 private:
  void grow(SlotPool& pool, bool shared) {
    const std::uint32_t old = slots_ == nullptr ? 0 : mask_ + 1;
    const std::uint32_t capacity = old == 0 ? 8 : 2 * old;
    Slot* slots = pool.take(capacity);
    for (std::uint32_t i = head; i != tail; ++i) slots[i & (capacity - 1)] = slots_[i & mask_];
    if (old > 0 && !shared) pool.give(slots_, old);
    slots_ = slots;
    mask_ = capacity - 1;
  }

  std::uint32_t mask_ = 0;
  Slot* slots_ = nullptr;
};

}  // namespace wt::net::packet
