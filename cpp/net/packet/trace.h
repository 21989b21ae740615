// Telemetry of packets under way, by number. A number is held by one packet, then by its ACK; who holds it may write the record.
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <vector>

#include "net/packet/control.h"

namespace wt::net::packet {

struct Trace {
  static constexpr std::size_t kMost = 15;
  std::uint32_t stamp = 0;
  std::uint32_t count = 0;
  std::array<Hop, kMost> hops;
};

// Records of one partition. Chunks never move, so that other partitions can use a record whose number they were handed.
class Traces {
 public:
  std::uint32_t make() {
    if (made_ % kChunk == 0) chunks_[made_ / kChunk] = std::make_unique<std::array<Trace, kChunk>>();
    return made_++;
  }
  Trace& operator[](std::uint32_t i) { return (*chunks_[i / kChunk])[i % kChunk]; }
  static constexpr std::uint32_t kMostTraces = 1U << 22;
  [[nodiscard]] bool full() const { return made_ == kMostTraces; }

 private:
  static constexpr std::uint32_t kChunk = 1024;
  std::uint32_t made_ = 0;
  std::array<std::unique_ptr<std::array<Trace, kChunk>>, kMostTraces / kChunk> chunks_;
};

}  // namespace wt::net::packet
