// The state of a run in columns. Each row is written by one partition only: links and buffers by the partition of the node that they
// leave or are in, senders and receivers by that of their endpoint.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "fabric/graph.h"
#include "net/lanes.h"
#include "net/packet/control.h"
#include "net/packet/options.h"

namespace wt::net::packet {

// Picoseconds that bytes take at `cost` = ps per byte in units of 2^-20, rounded up, so that no link is faster than it is.
inline constexpr int kCostBits = 20;
[[nodiscard]] inline Time serial(std::uint64_t cost, std::uint64_t bytes) {
  return static_cast<Time>((cost * bytes + ((std::uint64_t{1} << kCostBits) - 1)) >> kCostBits);
}

struct alignas(64) Link {  // an output port
  Ring data;
  Time free = 0;            // the wire is free from here on, as far as services have begun
  std::int64_t joined = 0;  // data bytes that ever joined the queue
  std::int64_t left = 0;    // data bytes whose service has begun
  std::uint64_t cost = 0;
  Time latency = 0;
  Ring control;
  std::int64_t kmin = INT64_MAX;
  std::int64_t peak = 0;
  std::int32_t source = -1;  // row of sources if lanes start here
  bool paused = false;
  bool armed = false;        // the wheel holds the arrival of the first data packet
  bool watched = false;      // the wheel holds the start of the next service
  bool dirty = false;        // on its partition's list of links to hand over
  bool up = true;
  // rarely touched
  std::int64_t kmax = INT64_MAX;
  std::int64_t control_bytes = 0;
  std::int64_t credits = INT64_MAX;
  Time paused_at = 0;
  Time paused_for = 0;
  double rate = 0;
};

struct LinkInfo {
  std::int32_t from = -1, to = -1, reverse = -1;
  std::int32_t cut = -1;  // row of wires if its ends lie in different partitions
};

// The far half of a link whose ends lie in different partitions.
struct alignas(64) Wire {
  Ring data, control;
};

struct Ingress {  // the buffer of what came in over a link
  std::int32_t held = 0;      // bytes, without headroom
  std::int32_t headroom = 0;  // bytes in headroom
  std::int32_t room = 0;      // bytes that headroom has
  bool paused = false;
};

struct Node {
  std::int64_t shared = 0;  // bytes in the shared pool
  std::int64_t pool = 0;
  std::int64_t alpha = 0;   // in units of 2^-16
  std::int64_t fixed = 0;   // threshold of each ingress instead, if > 0
  std::int64_t used = 0;    // with kDrop: all bytes
  Loss loss = Loss::kPause;
  std::int32_t paused = 0;  // of its ingresses
  std::int32_t part = 0;
};

// The first link of lanes: which of them sends next.
struct Source {
  struct Later {
    Time time;
    std::uint32_t pair;
    bool operator>(const Later& o) const { return time != o.time ? time > o.time : pair > o.pair; }
  };
  std::vector<std::uint32_t> ready;  // ring; those that may send now, in turn
  std::uint32_t head = 0, tail = 0;
  std::vector<Later> later;          // heap; those that wait for their pace
  Time wake = kForever;              // the earliest event that will look here again
  Time last = 0;                     // start of service of the last packet from here
  Time over = -1;                    // when that one arrives
  bool queued = false;               // one of its packets waits behind forwarded ones
};

enum class Pace : std::uint8_t { kIdle, kReady, kLater, kBlocked, kDone };

struct Sender {
  std::uint32_t next = 0;     // packet to send next
  std::uint32_t una = 0;      // first that is not acknowledged
  std::uint32_t limit = 0;    // packets that may be sent so far
  std::uint32_t total = 0;
  std::uint32_t high = 0;     // first that has never been sent
  std::uint32_t per = 0;      // packets of a full slice
  std::uint32_t in_slice = 0; // of `next`
  std::uint32_t hop = 0;      // of its first link in Paths::links
  Time ready = 0;             // pace: not before
  Time progress = 0;          // last sign of it, for the timeout
  double rate = 0;            // B/s at most
  std::int32_t link = -1;
  std::uint16_t hops = 0;
  std::uint16_t tail = 0;     // payload of the last packet of a slice
  std::uint16_t last = 0;     // payload of the last packet of all
  Pace pace = Pace::kIdle;
  bool begun = false;
  bool timer = false;         // the wheel holds its timeout
  std::uint8_t tries = 0;     // timeouts without progress
};

struct Receiver {
  std::uint32_t next = 0;       // packet expected
  std::uint32_t total = 0;
  std::uint32_t per = 0;
  std::uint32_t in_slice = 0;   // of `next`
  std::uint32_t count = 0;      // arrived since the last ACK
  Time nacked = -1;
  std::uint32_t nack_of = UINT32_MAX;
  bool marked = false;          // one of those since the last ACK was
  Time notified = INT64_MIN / 2;
};

struct Gate {  // slices of a lane, at its sender
  std::int64_t slices = 0;
  std::int64_t open = 0;  // whose dependencies hold
  std::int64_t let = 0;   // that may be sent: their delay is over
  Time begin = 0;
  Time delay = 0;
  std::int32_t window = 0;
};

struct World {
  World(const fabric::Graph& graph, const Paths& paths, const Lanes& lanes, const Options& options);

  [[nodiscard]] bool is_switch(std::int32_t node) const {
    return graph.node_kind[static_cast<std::size_t>(node)] == static_cast<std::uint8_t>(fabric::NodeKind::kSwitch);
  }

  fabric::Graph graph;
  Paths paths;
  Lanes lanes;
  Options options;
  std::int64_t reserve = 0, resume = 0, resume_at = 0;  // bytes; resume_at with fixed thresholds
  std::uint16_t control_size = 0;
  bool notify = false;          // receivers send CNPs
  Time notify_interval = 0;
  Time nack_interval = 0;
  std::vector<Time> timeouts;

  std::vector<Link> links;
  std::vector<LinkInfo> info;
  std::vector<Wire> wires;
  std::vector<Ingress> ingress;
  std::vector<Node> nodes;
  std::vector<std::int32_t> out_start, out;  // links that leave each node
  std::vector<Source> sources;
  std::vector<Sender> senders;
  std::vector<Receiver> receivers;
  std::vector<Gate> gates;
  std::vector<std::vector<std::uint32_t>> pending;  // [K] slices whose delay runs, only if there are delays
  std::vector<std::int64_t> after_start;            // [K+1]
  std::vector<std::int32_t> after;                  // lanes that depend on a lane
  std::vector<Time> delivered, acked;               // [K] kForever: not yet
  std::unique_ptr<Control> control;

 private:
  void build_links();
  void build_buffers();
  void build_lanes();
};

}  // namespace wt::net::packet
