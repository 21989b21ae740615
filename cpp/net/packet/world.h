// The state of a run in columns. Each row is written by one partition only: links and buffers by the partition of the node that
// they leave or are in, senders and receivers by that of their endpoint.
#pragma once

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <memory>
#include <span>
#include <utility>
#include <vector>

#include "fabric/graph.h"
#include "net/lanes.h"
#include "net/packet/control.h"
#include "net/packet/options.h"
#include "net/packet/trace.h"

namespace wt::net::packet {

// Picoseconds that bytes take at `cost` = ps per byte in units of 2^-20, rounded up, so that no link is faster than it is.
inline constexpr int kCostBits = 20;
[[nodiscard]] inline Time serial(std::uint64_t cost, std::uint64_t bytes) {
  return static_cast<Time>((cost * bytes + ((std::uint64_t{1} << kCostBits) - 1)) >> kCostBits);
}

// Picoseconds that bytes take at `rate` B/s.
[[nodiscard]] inline Time gap(std::uint16_t size, double rate) {
  return static_cast<Time>(std::min(size / rate / kPicosecond + 0.5, 4e18));
}

inline constexpr std::uint8_t kPaused = 1, kNoCredit = 2, kDown = 4;

struct alignas(64) Link {  // an output port
  Ring data;
  Time free = 0;            // the wire is free from here on, as far as services have begun
  Time due = kForever;      // the event of the first arrival that counts; others for it are stale
  std::int64_t joined = 0;  // data bytes that ever joined the queue
  std::int64_t left = 0;    // data bytes whose service has begun
  std::uint64_t cost = 0;
  Time latency = 0;
  Ring control;
  std::int64_t kmin = INT64_MAX;
  std::int64_t peak = 0;
  std::int32_t source = -1;  // row of sources if lanes start here
  std::uint8_t stopped = 0;  // why it may not begin a service: kPaused, kNoCredit, kDown
  bool watched = false;      // the wheel holds the start of the next service
  bool dirty = false;        // on its partition's list of links to hand over
  // rarely touched
  std::int64_t kmax = INT64_MAX;
  double pmax = 0;
  std::int64_t control_bytes = 0;
  std::int64_t credits = INT64_MAX;  // bytes that the far buffer grants
  std::int64_t granted = INT64_MAX;  // at first
  Time stopped_at = 0;
  Time stopped_for = 0;
  std::int64_t pauses = 0;
  double rate = 0;
};

struct LinkInfo {
  std::int32_t from = -1, to = -1, reverse = -1;
  std::int32_t cut = -1;  // row of wires if its ends lie in different partitions
};

// A link whose ends lie in different partitions, as the far end knows it: up to `sent` what is on the wire may be read where it
// lies.
struct alignas(64) Wire {
  struct Side {
    const Slot* slots = nullptr;
    std::uint32_t mask = 0;
    std::uint32_t sent = 0;
    std::atomic<std::uint32_t> head{0};  // the near end uses slots again that are behind it
  };
  Side data, control;
  std::uint32_t told_data = 0, told_control = 0;  // of the near end: `sent` as it was told
};

struct Ingress {              // the buffer of what came in over a link
  std::int32_t held = 0;      // bytes, without headroom; with credits: bytes freed that the sender has not been told of
  std::int32_t headroom = 0;  // bytes in headroom
  std::int32_t room = 0;      // bytes that headroom has
  std::int32_t spare = 0;     // bytes on top of it that came while the last pause waited behind other control frames
  bool paused = false;
  bool down = false;  // packets that still arrive are lost
};

struct Node {
  std::int64_t shared = 0;  // bytes in the shared pool
  std::int64_t pool = 0;
  std::int64_t alpha = 0;  // in units of 2^-16
  std::int64_t fixed = 0;  // threshold of each ingress instead, if > 0
  std::int64_t used = 0;   // with kDrop: all bytes
  Loss loss = Loss::kPause;
  std::int32_t paused = 0;  // of its ingresses
  bool watched = false;     // every start of service is an event
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
  std::vector<Later> later;  // heap; those that wait for their pace
  Time since = 0;            // when a pair last became ready by an event
  Time wake = kForever;      // the earliest event that will look here again
  Time last = 0;             // start of service of the last packet from here
  Time over = -1;            // when that one arrives
  bool queued = false;       // one of its packets waits behind forwarded ones
};

enum class Pace : std::uint8_t { kIdle, kReady, kLater, kBlocked, kDone };

struct Sender {
  std::uint32_t next = 0;   // packet to send next
  std::uint32_t una = 0;    // first that is not acknowledged
  std::uint32_t limit = 0;  // packets that may be sent so far
  std::uint32_t total = 0;
  std::uint32_t high = 0;      // first that has never been sent
  std::uint32_t per = 0;       // packets of a full slice
  std::uint32_t in_slice = 0;  // of `next`
  std::uint32_t hop = 0;       // of its first link in Paths::links
  Time ready = 0;              // pace: not before
  Time sent = 0;               // start of its last packet
  std::uint16_t size = 0;      // and its bytes on the wire
  Time progress = 0;           // last sign of it, for the timeout
  double rate = 0;             // B/s at most
  std::int32_t link = -1;
  std::uint16_t hops = 0;
  std::uint16_t tail = 0;  // payload of the last packet of a slice
  std::uint16_t last = 0;  // payload of the last packet of all
  Pace pace = Pace::kIdle;
  bool begun = false;
  bool timer = false;          // the wheel holds its timeout
  std::uint32_t notified = 0;  // CNPs heard
  std::uint8_t tries = 0;      // timeouts without progress
};

inline constexpr Time kLongAgo = INT64_MIN / 2;

struct Receiver {
  std::uint32_t next = 0;  // packet expected
  std::uint32_t total = 0;
  std::uint32_t per = 0;
  std::uint32_t in_slice = 0;  // of `next`
  std::uint32_t slices = 0;    // delivered
  std::uint32_t count = 0;     // arrived since the last ACK
  Time nacked = -1;
  std::uint32_t nack_of = UINT32_MAX;
  bool marked = false;  // one of those since the last ACK was
  Time notified = kLongAgo;
};

// Packets of a lane, by number, that are known out of order: at its receiver those that arrived, at its sender those that it heard
// of.
class Known {
 public:
  [[nodiscard]] bool has(std::uint32_t i) const {
    return i >= base_ && i < end() && (words_[(i - base_) / 64] >> ((i - base_) % 64) & 1) != 0;
  }
  void add(std::uint32_t i) {
    if (words_.empty()) base_ = i / 64 * 64;
    if (i < base_) {
      words_.insert(words_.begin(), (base_ - i / 64 * 64) / 64, 0);
      base_ = i / 64 * 64;
    }
    while (i >= end()) words_.push_back(0);
    words_[(i - base_) / 64] |= std::uint64_t{1} << ((i - base_) % 64);
    top_ = std::max(top_, i + 1);
  }
  void forget_below(std::uint32_t i) {
    std::size_t n = 0;
    while (n < words_.size() && base_ + 64 * (n + 1) <= i) ++n;
    words_.erase(words_.begin(), words_.begin() + static_cast<std::ptrdiff_t>(n));
    base_ += static_cast<std::uint32_t>(64 * n);
  }
  [[nodiscard]] std::uint32_t top() const { return top_; }  // one above the highest

 private:
  [[nodiscard]] std::uint32_t end() const { return base_ + static_cast<std::uint32_t>(64 * words_.size()); }
  std::uint32_t base_ = 0;
  std::uint32_t top_ = 0;
  std::vector<std::uint64_t> words_;
};

struct Recover {  // selective repeat of a lane, at its sender
  Known heard;
  std::uint32_t again = 0;  // next hole to look at
  std::uint32_t end = 0;    // holes are looked for up to here
  std::uint32_t until = 0;  // recovery ends when all below is acknowledged
  bool on = false;
};

struct Direct {  // packets that choose their way at each switch: from the first switch on to `target`, whose link in the path is
                 // `exit`
  std::uint32_t enter = 0, exit = 0;
  std::uint8_t after = 0;  // links after `exit`
  std::int32_t target = -1;
  std::int32_t row = -1;  // of the table of next hops
};

struct Track {  // a series of a link (bytes waiting, sent so far, pauses heard so far) or of a lane (rate, bytes acknowledged,
                // CNPs)
  std::vector<double> first;
  std::vector<std::int64_t> second, third;
};

struct Gate {  // slices of a lane, at its sender
  std::int64_t slices = 0;
  std::int64_t open = 0;  // whose dependencies hold
  std::int64_t let = 0;   // that may be sent: their delay is over
  Time begin = 0;
  Time delay = 0;
  std::int32_t window = 0;
};

inline constexpr std::int64_t kSlab = 1 << 19;  // events between two polls

struct World {
  World(const fabric::Graph& graph, const Paths& paths, const Lanes& lanes, const Options& options, const Faults& faults);

  [[nodiscard]] bool is_switch(std::int32_t node) const {
    return graph.node_kind[static_cast<std::size_t>(node)] == static_cast<std::uint8_t>(fabric::NodeKind::kSwitch);
  }

  fabric::Graph graph;
  Paths paths;
  Lanes lanes;
  Options options;
  Faults faults;
  bool lossy_links = false;
  std::uint32_t reorder = 1;
  std::int64_t full = 0;                                // bytes of a full packet on the wire
  std::int64_t credit_step = 0;                         // bytes freed before credit is returned to the sender
  std::int64_t reserve = 0, resume = 0, resume_at = 0;  // bytes; resume_at with fixed thresholds
  std::uint16_t control_size = 0;
  bool notify = false;  // receivers send CNPs
  Time notify_interval = 0;
  std::vector<Time> port_notified;  // [L] last CNP for a packet that came over the link, if they are paced per port; else empty
  Time nack_interval = 0;
  Time flowlet_gap = 0;
  bool telemetry = false;
  std::vector<Time> timeouts, flap_times, detour_times;

  Pages pages;
  PageVector<Link> links;
  PageVector<LinkInfo> info;
  std::vector<Wire> wires;
  std::vector<Ingress> ingress;
  std::vector<Node> nodes;
  std::vector<std::int32_t> out_start, out;  // links that leave each node
  static constexpr std::uint32_t kFirst = 1U << 31;
  std::vector<std::uint32_t> way;  // Paths::links, with kFirst on the first of each path
  std::vector<Source> sources;
  PageVector<Sender> senders;
  PageVector<Receiver> receivers;
  std::vector<Gate> gates;
  std::vector<Recover> recover;                     // [K] with selective repeat
  std::vector<Known> arrived;                       // [K] with selective repeat
  std::vector<Direct> direct;                       // [K] unless packets stay on their path
  std::vector<std::int32_t> hop_start, hops;        // next hops: row * nodes + node into hops
  std::vector<std::uint32_t> turn;                  // [N] of dealing out in turn
  std::vector<std::uint64_t> frames;                // [2 L] frames that arrived over each link, if links lose some
  std::vector<std::vector<std::uint32_t>> pending;  // [K] slices whose delay runs, only if there are delays
  std::vector<Time> hold;                           // [K] only if lanes have it
  std::vector<std::int64_t> after_start;            // [K+1]
  std::vector<std::int32_t> after;                  // lanes that depend on a lane
  std::vector<Time> delivered, acked;               // [K] kForever: not yet
  std::vector<std::unique_ptr<Control>> controls;   // of kRows pairs each, or one for all
  static constexpr int kRowBits = 14;

  // Pairs beyond the lanes are copies of them, made while a run goes on (see network.h): lane_of says which.
  std::vector<std::uint32_t> copy_of;  // [pairs], empty without copies
  std::vector<std::int32_t> instance;  // [pairs] of a plan

  [[nodiscard]] Control& control_of(std::uint32_t pair) { return copy_of.empty() ? *controls[0] : *controls[pair >> kRowBits]; }
  [[nodiscard]] std::int32_t row_of(std::uint32_t pair) const {
    return static_cast<std::int32_t>(copy_of.empty() ? pair : pair & ((1U << kRowBits) - 1));
  }
  [[nodiscard]] std::uint32_t lane_of(std::uint32_t pair) const { return copy_of.empty() ? pair : copy_of[pair]; }
  // Most events lie this far ahead at most: a full packet and its way over the slowest of the usual links.
  [[nodiscard]] Time span() const;
  // Adds to `ways` all links that packets of a lane may take, some of them twice.
  void add_ways(std::uint32_t lane, std::vector<std::int32_t>& ways) const;
  // Adds a copy of lanes [first, last) as pairs, or makes the pairs from `at` on new again; the first of them.
  std::uint32_t copy(std::uint32_t first, std::uint32_t last, std::int32_t of_instance, std::uint32_t at);
  void make_patterns();  // the lanes themselves run no more: copies of them do
  void set_path(std::uint32_t pair, std::int32_t path);
  static constexpr std::uint32_t kAtEnd = UINT32_MAX;
  std::vector<std::unique_ptr<Traces>> traces;  // [partitions] with telemetry
  std::vector<Track> link_tracks, lane_tracks;
  std::vector<LinkLoad> loads;  // [L] if they are counted
  bool counts = false;          // whether they are
  [[nodiscard]] std::int32_t tag_of(std::uint32_t pair) const {
    const std::uint32_t lane = lane_of(pair);
    return options.tags.empty() ? static_cast<std::int32_t>(lane) : options.tags[lane];
  }

 private:
  void build_links();
  void build_buffers();
  void build_lanes();
  void build_source(std::int32_t link);
  void build_direct();
};

}  // namespace wt::net::packet
