// Options and results of a packet run. SI units here; picoseconds inside.
#pragma once

#include <array>
#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "net/packet/cc/registry.h"
#include "net/packet/frame.h"
#include "net/packet/load.h"

namespace wt::net::packet {

enum class Loss : std::uint8_t {
  kPause,    // lossless: priority flow control per ingress (RoCE with PFC)
  kDrop,     // lossy: a switch drops what its egress threshold does not admit
  kCredits,  // lossless: a link sends what the far buffer has granted (InfiniBand)
};

struct Marking {  // of a port with `rate` B/s, scaled to others; rate 0: any port, not scaled
  double rate = 0;
  double kmin = 0, kmax = 0, pmax = 0;  // bytes behind the packet; probability at kmax, 1 above
};

enum class Recovery : std::uint8_t { kGoBackN, kSelective };

enum class Spread : std::uint8_t {
  kPath,      // all packets of a lane on its path
  kRound,     // each switch deals packets out in turn among its equal next hops
  kRandom,    // by a hash of the packet
  kAdaptive,  // to the shortest queue, the first of equals
  kFlowlet,   // a new hop, by hash, after a gap
};

struct Options {
  std::int32_t mtu = 4096;    // payload of a full packet
  std::int32_t header = 0;    // bytes added to every data packet on the wire
  std::int32_t control = 64;  // bytes of ACK, NACK, CNP, pause and credit frames
  Loss loss = Loss::kPause;
  double buffer = 32e6;       // bytes of each switch, shared by its ports; at least that, where the next line asks for more
  double buffer_time = 0;     // s that the sum of a switch's ports takes to fill its buffer: a larger switch has a larger one
  double inner_buffer = 4e6;  // bytes of each other node that forwards; it always pauses its upstream and never drops
  double alpha = 0.125;       // of dynamic thresholds: per ingress with kPause, per egress with kDrop
  double reserve = 4096;      // bytes of each ingress before the shared pool
  double resume = 3000;       // bytes below the threshold at which a pause ends
  double headroom = -1;       // bytes of each ingress above the threshold; < 0: what the cable and the packets under way need
  double xoff = 0, xon = 0;   // fixed thresholds per ingress instead of dynamic ones, if xoff > 0
  double credit = 0;          // bytes of each ingress with kCredits; 0: twice what a round trip on the cable needs
  std::vector<Marking> ecn;   // rows; a port takes that of the nearest rate (by ratio); none: no marks
  std::string control_name = "none";
  std::vector<Setting> control_settings;
  Recovery recovery = Recovery::kGoBackN;
  std::int32_t ack_every = 1;  // packets per ACK; the last packet of a slice is always acknowledged
  double nack_interval = 500e-6;
  std::int32_t reorder = 0;  // selective: packets out of order that are not taken for a loss; 0: none on paths, 1024 else
  std::vector<double> timeouts = {4e-3, 4e-3, 16e-3, 67e-3};  // consecutive retransmission timeouts; the last one repeats
  std::int32_t retries = 20;                                  // timeouts without progress before the run fails
  Spread spread = Spread::kPath;
  double flowlet_gap = 100e-6;
  std::uint64_t seed = 1;
  std::int32_t threads = 1;
  std::int32_t parts = 0;  // partitions, at most; 0: as many as the size of what packets use asks for, and one for each thread
  std::int64_t few = 60;   // of a network that is fed: events of a window below which threads are not worth it; 0: always worth it
  double most_ahead = 1;   // s that it goes ahead of its caller, at most; 0: event by event
  bool skip = false;       // fast-forward steady states of collectives (skip.h); one thread
  double sample = 0;       // s between samples of the series; 0: none
  std::vector<std::int32_t> sample_links, sample_lanes;
  bool loads = false;              // count what links carry over time and for whom
  std::vector<std::int32_t> tags;  // [K] whom a lane is for; empty: each for itself
};

struct Flap {  // of a cable, named by either of its links
  double time = 0;
  std::int32_t link = 0;
  bool up = false;
};

struct Detour {  // from `time` on a lane takes another path
  double time = 0;
  std::int32_t lane = 0;
  std::int32_t path = 0;
};

// Injected faults. With an origin, times are the run's, what happened before it is in force from the start, and whether a packet
// is lost depends on the link and the moment, so a second simulation of the same packets loses the same ones.
struct Faults {
  std::vector<Flap> flaps;  // what is on a cable or waits for it is lost when it goes down; what comes for it later too
  std::vector<Detour> detours;
  std::vector<double> loss;       // [L] probability that a packet is lost on the link; empty: none
  std::vector<double> bit_error;  // [L] per bit
  std::int64_t origin = -1;       // ps of the run at which this network's clock starts; < 0: it is the run's own clock
};

struct Stats {
  std::int64_t data_hops = 0;     // data packets that arrived over a link
  std::int64_t ack_hops = 0;      // ACKs and NACKs
  std::int64_t control_hops = 0;  // CNPs, pauses, credits
  std::int64_t events = 0;
  std::int64_t drops = 0;
  std::int64_t losses = 0;        // by error rates and links that are down
  std::int64_t pauses = 0;        // by switches
  std::int64_t inner_pauses = 0;  // back-pressure of nodes inside servers, and of hosts
  std::int64_t marks = 0;
  std::int64_t notifications = 0;
  std::int64_t retransmits = 0;
  std::int64_t timeouts = 0;
  std::int64_t out_of_order = 0;
  std::int64_t repeats = 0;  // packets that had arrived before

  void add(const Stats& o) {
    data_hops += o.data_hops, ack_hops += o.ack_hops, control_hops += o.control_hops, events += o.events, drops += o.drops;
    losses += o.losses, pauses += o.pauses, inner_pauses += o.inner_pauses, marks += o.marks, notifications += o.notifications,
        retransmits += o.retransmits;
    timeouts += o.timeouts, out_of_order += o.out_of_order, repeats += o.repeats;
  }
};

struct Result {
  Stats stats;
  std::vector<double> delivered;           // [K] s: the last byte reached the receiver
  std::vector<double> acked;               // [K] s: the sender has the last ACK
  std::vector<std::int64_t> link_data;     // [L] bytes
  std::vector<std::int64_t> link_control;  // [L] bytes
  std::vector<std::int64_t> link_peak;     // [L] bytes waiting, at most
  std::vector<double> link_paused;         // [L] s
  double end = 0;                          // s: the last event
  std::int32_t partitions = 1;
  bool stopped = false;                    // by its poll; times of lanes that had not ended are NaN
  double skipped_share = 0;                // of all bytes
  double skipped_time = 0;                 // s
  double skip_error = 0;                   // s by which the end may be wrong for it, estimated
  std::vector<double> sample_time;         // [T] s
  std::vector<std::int64_t> queue;         // [links x T] bytes waiting
  std::vector<std::int64_t> sent;          // [links x T] data bytes so far
  std::vector<std::int64_t> pauses;        // [links x T] pauses so far
  std::vector<double> rate;                // [lanes x T] B/s that congestion control permits
  std::vector<std::int64_t> acknowledged;  // [lanes x T] bytes
  std::vector<std::int64_t> cnps;          // [lanes x T] heard so far
  Loads loads;                             // if asked for; a lane's tag
};

// Called now and then with the share of bytes delivered; true stops the run.
using Poll = std::function<bool(double)>;

}  // namespace wt::net::packet
