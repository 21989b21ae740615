// A partition: the nodes that one thread simulates, with their clock and events.
//
// A packet-hop is one event, the arrival at the far end of a link. Services are worked out late: a port's queue is a virtual clock
// that is moved on (advance) when a packet of it arrives at the far end, or when somebody must know; both find the same starts,
// because a service begins at a moment that depends only on what joined the queue before. ECN marks, buffers and pauses see the
// queue at that moment. What happens at one instant at one node happens in this order: arrivals by link, timers by lane, starts of
// services.
#pragma once

#include <cstdint>
#include <unordered_map>
#include <vector>

#include "net/packet/wheel.h"
#include "net/packet/world.h"

namespace wt::net::packet {

struct Mail {  // news of a link that leads into another partition
  Time time;   // when the first of what is new arrives; kForever: only its memory is
  const Slot* slots;
  std::uint32_t mask, sent;
  std::uint32_t link;  // 2 * link + 1 for its control frames
  std::int32_t part;   // who reads it
};

class Part {
 public:
  Part(World& world, std::int32_t self, Time span);

  // Lanes of this partition's endpoints. Before `from` nothing happens any more: lanes that begin sooner wait for others anyway.
  void start(std::span<const std::uint32_t> lanes, Time from = 0);
  // Handles events before `limit`, at most `most` of them; false if there are none left before it.
  bool run(Time limit, std::int64_t most);
  void sample_to(Time end);  // what is left of the series
  [[nodiscard]] Time next_event() { return wheel_.peek(); }

  // Tells what left through cut links before `limit`, in `news`; returns the earliest later moment at which more may begin to
  // leave.
  Time hand_over(Time limit);
  std::vector<Mail> news;
  void take(const Mail& mail);
  [[nodiscard]] Time not_before() const { return wheel_.not_before(); }
  struct End {  // of a lane of an instance: it was delivered, or its sender has the last ACK
    Time time;
    std::uint64_t event;  // that ended it: the same however a run is cut
    std::int32_t instance;
    bool delivered;
  };
  std::vector<End> ended_lanes;  // of copies: what the caller has not taken yet

  [[nodiscard]] std::int64_t arrived() const { return arrived_; }
  [[nodiscard]] std::int64_t finished() const { return finished_; }
  [[nodiscard]] Time now() const { return now_; }
  [[nodiscard]] Time last() const { return last_; }  // when something last happened; timers that find nothing to do do not count

  // For skipping (skip.h): every `window` slices of a lane, when they arrived and how many each lane had then.
  struct Mark {
    Time time;
    std::vector<std::int64_t> slices;
  };
  // Marks are made of all lanes from the lane's next slice on, every `window` slices of it; UINT32_MAX: none.
  void pace_of(std::uint32_t lane, std::int64_t window) {
    pace_lane_ = lane, pace_window_ = window, pace_from_ = lane == UINT32_MAX ? 0 : slices_in(lane) + 1;
    marks_.clear();
  }
  [[nodiscard]] std::uint32_t pace_lane() const { return pace_lane_; }
  [[nodiscard]] const std::vector<Mark>& marks() const { return marks_; }
  void later(Time by) { skipped_ += by; }  // ends from now on are that much later
  Stats stats;

 private:
  enum Event : std::uint64_t { kArrival, kBegin, kReady, kRetry, kFlap, kDetour, kDelivered, kWatch };
  static constexpr std::uint64_t id(Event e, std::uint64_t index) { return (static_cast<std::uint64_t>(e) << 40) | index; }
  void handle(std::uint64_t event);

  // hop.cpp: ports
  void arrive(std::uint32_t link);
  void arrive_control(std::uint32_t link);
  void forward(std::uint32_t out, Frame frame, std::int32_t in);
  Frame take_off(Wire::Side& side, std::uint64_t event);
  void tell(std::uint32_t link, Ring& ring, Wire::Side& side, std::uint32_t& told, std::int32_t part);
  void push(std::uint32_t l, Ring& ring, Time time, const Frame& frame) { ring.push(time, frame, pool_, w_.info[l].cut >= 0); }
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
  std::int32_t late_bytes(std::int32_t link) const;
  void release(const Frame& frame, std::int32_t at);
  void resume_some(std::int32_t at, Node& node);
  void settle(std::int32_t node);
  [[nodiscard]] std::int64_t threshold(const Node& node) const;
  void stop(std::uint32_t l, std::uint8_t why, bool on);
  static void halt(Link& link, std::uint8_t why, Time at);
  void give_back(std::int32_t link, std::int64_t size);
  void grant(std::uint32_t l, std::int64_t size);

  // source.cpp: queue pairs on their port
  void advance_source(std::uint32_t l, Link& link, Time limit);
  [[nodiscard]] static Time next_own(const Source& source, const Link& link);
  bool pull(std::uint32_t l, Link& link, Source& source, Time at, Time joined);
  std::uint32_t next_packet(std::uint32_t pair, const Sender& s);
  void wait(Source& source, std::uint32_t pair, Time until);
  void offer(std::uint32_t pair);
  void kick(std::uint32_t l);
  void push_ready(Source& source, std::uint32_t pair);
  [[nodiscard]] std::int64_t byte_of(std::uint32_t pair, std::uint32_t packet) const;
  void begin_pair(std::uint32_t pair, Time at);

  // sender.cpp
  void hear(const Frame& frame);
  void heard_ack(std::uint32_t pair, Sender& s, const Frame& frame);
  void heard_out_of_order(std::uint32_t pair, Sender& s, const Frame& frame);
  static void rewind(Sender& s, std::uint32_t to);
  void retry(std::uint32_t pair);

  // receiver.cpp
  void receive(std::uint32_t link, const Frame& frame);
  void answer(const Frame& frame, Kind kind, Receiver& r);
  static bool step(Receiver& r);

  // routing.cpp
  bool follow(std::uint32_t link, Frame& frame, std::int32_t node);
  std::uint32_t choose(const Frame& frame, std::int32_t node);

  // faults.cpp
  [[nodiscard]] bool lost(std::uint32_t l, const Frame& frame, std::uint64_t count);
  void flap(std::uint32_t l, bool up);
  void detour(const Detour& d);
  void take_detour(std::uint32_t pair, const Detour& d);

  // telemetry.cpp
  std::uint32_t new_trace(Time at);
  [[nodiscard]] Trace& trace(std::uint32_t number) { return (*w_.traces[number >> 22])[number & (Traces::kMostTraces - 1)]; }
  void note(std::uint32_t l, const Link& link, Time start, const Frame& frame);
  void drop_trace(const Frame& frame) {
    if (w_.telemetry && (frame.kind == Kind::kData || frame.kind == Kind::kAck || frame.kind == Kind::kNack))
      free_traces_.push_back(frame.stamp);
  }
  void sample();
  void count(std::uint32_t l, const Link& link, Time start, const Frame& frame);
  void count_control(std::uint32_t l, const Frame& frame);

  // gates.cpp: slices
  void open(std::uint32_t lane);
  void let(std::uint32_t lane, std::int64_t slices);
  [[nodiscard]] Time delivery_of(const Frame& frame);
  void slice_delivered(std::uint32_t lane);
  void ended(std::uint32_t lane, bool all_delivered);
  [[nodiscard]] std::int64_t slices_in(std::uint32_t lane) const { return w_.receivers[lane].slices; }

  struct Flowlet {
    Time last = -1;
    std::uint64_t number = 0;
  };
  static constexpr std::uint32_t kNothing = UINT32_MAX;
  [[nodiscard]] Frame local(Kind kind) const {
    Frame frame;
    frame.size = w_.control_size;
    frame.kind = kind;
    return frame;
  }
  bool run_to(Time limit, std::int64_t& most);
  void fetch_ahead();
  static constexpr std::size_t kFewLinks = 4096;                // up to so many, ports are in the cache anyway
  static constexpr std::size_t kFar = 6, kNear = 3, kNext = 1;  // events ahead

  World& w_;
  std::int32_t self_;
  bool fetches_;
  Time now_ = 0;
  Time last_ = 0;
  std::uint64_t event_ = 0;  // that happens
  Wheel wheel_;
  SlotPool pool_;
  std::int64_t arrived_ = 0;                             // bytes
  std::int64_t finished_ = 0;                            // lanes, by their receiver and, for those that start here, their sender
  std::unordered_map<std::uint64_t, Flowlet> flowlets_;  // by node and lane
  std::vector<std::uint32_t> free_traces_;
  std::vector<std::uint32_t> sample_links_, sample_lanes_;  // columns of this partition
  Time next_sample_ = kForever, sample_every_ = 0;
  std::uint32_t pace_lane_ = UINT32_MAX;
  std::int64_t pace_window_ = 0, pace_from_ = 0;
  std::vector<Mark> marks_;
  Time skipped_ = 0;
  std::vector<std::uint32_t> dirty_;  // cut links with something to hand over
};

}  // namespace wt::net::packet
