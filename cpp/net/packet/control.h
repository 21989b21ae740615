// Congestion control of a queue pair: how fast it may send and how much may be outstanding. One file an algorithm (cc/), one object
// a run, state of all queue pairs in columns of its own; no global state, no clock but the times that it is told.
//
// Timers of an algorithm are not events: it catches up with those that have run out whenever it is called, which gives the same
// rates at the moments that matter (when a packet leaves).
#pragma once

#include <cstdint>
#include <span>

namespace wt::net::packet {

using Time = std::int64_t;  // picoseconds

inline constexpr double kPicosecond = 1e-12;

// Properties of its path that a queue pair knows at its start.
struct Line {
  double rate = 0.0;  // B/s of the slowest link on the path, or of the sender's port
  Time base_rtt = 0;  // idle round trip of one full packet and its ACK
  std::int32_t hops = 0;
  std::int32_t mtu = 0;  // bytes of a full packet
};

// In-band telemetry of one hop, as the packet left it.
struct Hop {
  Time time = 0;
  std::int64_t sent = 0;   // bytes that the port has sent so far
  std::int64_t queue = 0;  // bytes behind the packet
  double rate = 0.0;       // B/s of the port
};

struct Ack {
  Time now = 0;
  Time rtt = 0;               // since the acknowledged packet left
  std::int64_t bytes = 0;     // newly acknowledged
  std::int64_t seq = 0;       // everything below is acknowledged
  std::int64_t next = 0;      // next new byte that the sender would send
  bool marked = false;        // the packet (or one of those that this ACK stands for) carried a congestion mark
  std::span<const Hop> hops;  // empty unless the algorithm wants telemetry
};

struct Permit {
  double rate = 0.0;        // B/s, paced
  std::int64_t window = 0;  // bytes that may be outstanding; kNoWindow: any number
  // Until when this holds if nothing is heard: a timer may raise the rate then. A sender that is paced beyond it asks again then,
  // and paces its last packet by the new rate; at 1 Mb/s a packet of 4 KiB would hold the pair for 33 ms otherwise.
  Time until = INT64_MAX;
};

inline constexpr std::int64_t kNoWindow = INT64_MAX;

class Control {
 public:
  virtual ~Control() = default;
  [[nodiscard]] virtual bool wants_telemetry() const { return false; }
  [[nodiscard]] virtual bool wants_notifications() const { return false; }  // CNPs of the receiver
  // Least time between two CNPs of a receiver; 0: one for each marked packet.
  [[nodiscard]] virtual Time notification_interval() const { return 0; }
  // Whether that time is between any two of the receiving port, or between two to the same pair.
  [[nodiscard]] virtual bool notifications_per_port() const { return false; }

  virtual void begin(std::int32_t pair, Time now, const Line& line) = 0;  // before its first packet
  virtual void acked(std::int32_t pair, const Ack& ack);                  // by default nothing
  virtual void notified(std::int32_t pair, Time now);                     // a CNP came
  virtual void lost(std::int32_t pair, Time now, bool timed_out);         // a NACK, or the retransmission timer
  virtual void sent(std::int32_t pair, Time now, std::int64_t bytes);     // a packet left
  // Rate and window at `now`, which never decreases for a pair.
  [[nodiscard]] virtual Permit permit(std::int32_t pair, Time now) = 0;
};

inline void Control::acked(std::int32_t, const Ack&) {}
inline void Control::notified(std::int32_t, Time) {}
inline void Control::lost(std::int32_t, Time, bool) {}
inline void Control::sent(std::int32_t, Time, std::int64_t) {}

}  // namespace wt::net::packet
