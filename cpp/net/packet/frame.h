// A packet in flight, and the ring of packets of each direction of a cable.
#pragma once

#include <cstdint>
#include <memory>
#include <span>

#include "net/packet/control.h"

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

// head..sent are on the wire, sent..tail wait. Indices run freely; memory grows by doubling.
class Ring {
 public:
  [[nodiscard]] bool on_wire() const { return head != sent; }
  [[nodiscard]] bool waiting() const { return sent != tail; }
  [[nodiscard]] std::uint32_t size() const { return tail - head; }
  Slot& operator[](std::uint32_t i) { return slots_[i & mask_]; }
  const Slot& operator[](std::uint32_t i) const { return slots_[i & mask_]; }

  void push(Time time, const Frame& frame) {
    if (slots_ == nullptr || tail - head > mask_) [[unlikely]]
      grow();
    Slot& slot = slots_[tail++ & mask_];
    slot.time = time;
    slot.frame = frame;
  }

  std::uint32_t head = 0;
  std::uint32_t sent = 0;
  std::uint32_t tail = 0;

 private:
  void grow() {
    const std::uint32_t old = slots_ == nullptr ? 0 : mask_ + 1;
    const std::uint32_t capacity = old == 0 ? 8 : 2 * old;
    auto slots = std::make_unique_for_overwrite<Slot[]>(capacity);
    for (std::uint32_t i = head; i != tail; ++i) slots[i & (capacity - 1)] = slots_[i & mask_];
    slots_ = std::move(slots);
    mask_ = capacity - 1;
  }

  std::uint32_t mask_ = 0;
  std::unique_ptr<Slot[]> slots_;
};

}  // namespace wt::net::packet
