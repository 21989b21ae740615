// A partition: the nodes that one thread simulates, with their clock and events.
//
// A packet-hop is one event, the arrival at the far end of a link. Services are worked out late: a port's queue is a virtual clock
// that is moved on (advance) when a packet of it arrives at the far end, or when somebody must know; both find the same starts,
// because a service begins at a moment that depends only on what joined the queue before. ECN marks, buffers and pauses see the
// queue at that moment. What happens at one instant at one node happens in this order: arrivals by link, timers by lane, starts of services.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "net/packet/wheel.h"
#include "net/packet/world.h"

namespace wt::net::packet {

struct Mail {  // a packet that crosses into another partition
  Time time;   // of arrival
  std::uint32_t link;
  Frame frame;
};

class Part {
 public:
  Part(World& world, std::int32_t self, std::int32_t parts, Time span);

  void start(std::span<const std::uint32_t> lanes);  // of this partition's endpoints
  // Handles events before `limit`, at most `most` of them; false if there are none left before it.
  bool run(Time limit, std::int64_t most);
  [[nodiscard]] Time next_event() { return wheel_.peek(); }

  // Hands over what left through cut links before `limit`; returns the earliest later moment at which more may begin to leave.
  Time hand_over(Time limit);
  void take(std::span<const Mail> mail);
  std::vector<std::vector<Mail>> outbox;  // [parts]

  [[nodiscard]] std::int64_t arrived() const { return arrived_; }
  [[nodiscard]] std::int64_t finished() const { return finished_; }
  [[nodiscard]] Time now() const { return now_; }
  Stats stats;

 private:
  enum Event : std::uint64_t { kArrival, kBegin, kReady, kRetry, kFlap, kDetour, kSample, kWatch };
  static constexpr std::uint64_t id(Event e, std::uint64_t index) { return (static_cast<std::uint64_t>(e) << 40) | index; }
  void handle(std::uint64_t event);

  // hop.cpp: ports
  void arrive(std::uint32_t link);
  void arrive_control(std::uint32_t link);
  void forward(std::uint32_t out, Frame frame, std::int32_t in);
  void advance(std::uint32_t l, Link& link, Time limit) {
    if (link.data.waiting() || link.source >= 0) advance_on(l, link, limit);
  }
  void advance_on(std::uint32_t l, Link& link, Time limit);
  void commit(std::uint32_t l, Link& link, Time start);
  void mark(std::uint32_t l, const Link& link, Time start, Slot& slot);
  [[nodiscard]] std::int64_t behind(const Link& link, Time start) const;
  void arm(std::uint32_t l, Link& link);
  void watch(std::uint32_t l);
  void watch_from(std::uint32_t l, Link& link);
  void send_control(std::uint32_t out, Frame frame);

  // buffer.cpp: what a node admits, pauses and resumes
  [[nodiscard]] bool admit(std::uint32_t out, const Frame& frame, std::int32_t in);
  bool admit_closely(Node& node, std::int32_t at, Ingress& in, std::int32_t link, std::int64_t size);
  void release(const Frame& frame, std::int32_t at);
  void resume_some(std::int32_t at, Node& node);
  void settle(std::int32_t node);
  [[nodiscard]] std::int64_t threshold(const Node& node) const;
  void pause(std::uint32_t l, bool on);

  // source.cpp: queue pairs on their port
  void advance_source(std::uint32_t l, Link& link, Time limit);
  [[nodiscard]] static Time next_own(const Source& source, const Link& link);
  bool pull(Link& link, Source& source, Time at, Time joined);
  void offer(std::uint32_t pair);
  void kick(std::uint32_t l);
  void push_ready(Source& source, std::uint32_t pair);
  [[nodiscard]] std::int64_t byte_of(std::uint32_t pair, std::uint32_t packet) const;
  void begin_pair(std::uint32_t pair, Time at);

  // sender.cpp
  void hear(const Frame& frame);
  void heard_ack(std::uint32_t pair, Sender& s, const Frame& frame);
  void rewind(Sender& s, std::uint32_t to);
  void retry(std::uint32_t pair);

  // receiver.cpp
  void receive(std::uint32_t link, const Frame& frame);
  void answer(std::uint32_t link, const Frame& frame, Kind kind, Receiver& r);

  // gates.cpp: slices
  void open(std::uint32_t lane);
  void let(std::uint32_t lane, std::int64_t slices);
  void slice_arrived(std::uint32_t lane);
  [[nodiscard]] std::int64_t slices_in(std::uint32_t lane) const;

  World& w_;
  std::int32_t self_;
  Time now_ = 0;
  Wheel wheel_;
  std::int64_t arrived_ = 0;   // bytes
  std::int64_t finished_ = 0;  // lanes, by their receiver and, for those that start here, their sender
  std::vector<std::uint32_t> dirty_;  // cut links with something to hand over
};

}  // namespace wt::net::packet
