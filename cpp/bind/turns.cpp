// What stages do turn by turn, as instances of a program: columns in, columns out.
#include "exec/turns.h"

#include <cstdint>

#include "bind/columns.h"
#include "bind/parts.h"

namespace wt::bind {
namespace {

using Long = Column<std::int64_t>;

nb::dict write(const Long& table, const Long& stage, const Long& tmpl, const Long& group, const Long& gather, const Long& send_key,
               const Long& receive_key, const Long& send_stream, const Long& receive_stream, const Column<double>& seconds,
               const Long& way, std::int64_t cat_wait, std::int64_t cat_transfer, std::int64_t receive_flags, bool senders_wait,
               const Long& start, const Long& pass_tmpl, const Long& task, const Long& of_pass, const Long& wait_start,
               const Long& waits, const Long& last, const Long& gathers, const Long& before, const Long& of_kind, std::int64_t pair,
               std::int64_t send, std::int64_t receive) {
  auto out = wt::exec::write_turns({span_of(table), span_of(stage), span_of(tmpl), span_of(group), span_of(gather)},
                                   {span_of(send_key), span_of(receive_key), span_of(send_stream), span_of(receive_stream),
                                    span_of(seconds), span_of(way), cat_wait, cat_transfer, receive_flags, senders_wait},
                                   {span_of(start), span_of(pass_tmpl), span_of(task), span_of(of_pass), span_of(wait_start),
                                    span_of(waits), span_of(last), span_of(gathers), span_of(before)},
                                   {span_of(of_kind), pair, send, receive});
  const std::size_t instances = out.waits_start.size() - 1, meetings = out.seconds.size(), turns = out.done.size();
  nb::dict answer;
  answer["rows"] = array_of(std::move(out.rows), {instances, 4});
  answer["labels"] = array_of(std::move(out.labels), {instances, 3});
  answer["waits"] = array_of(std::move(out.waits));
  answer["waits_start"] = array_of(std::move(out.waits_start));
  answer["meetings"] = array_of(std::move(out.meetings), {meetings, 4});
  answer["keys"] = array_of(std::move(out.keys), {meetings, 2});
  answer["seconds"] = array_of(std::move(out.seconds), {meetings, 1});
  answer["meets_start"] = array_of(std::move(out.meets_start));
  answer["start"] = array_of(std::move(out.start));
  answer["done"] = array_of(std::move(out.done));
  answer["moved"] = array_of(std::move(out.moved), {turns, 2});
  answer["base"] = array_of(std::move(out.base));
  return answer;
}

}  // namespace

void bind_turns(nb::module_& m) {
  using nb::literals::operator""_a;
  m.def("write_turns", &write, nb::kw_only(), column("table"), column("stage"), column("template"), column("group"),
        column("gather"), column("send_key"), column("receive_key"), column("send_stream"), column("receive_stream"),
        column("seconds"), column("way"), "cat_wait"_a, "cat_transfer"_a, "receive_flags"_a, "senders_wait"_a, column("start"),
        column("pass_template"), column("task"), column("of_pass"), column("wait_start"), column("waits"), column("last"),
        column("gathers"), column("before"), column("of_kind"), "pair"_a, "send"_a, "receive"_a,
        "Instances of turns; see windtunnel.engine.turns.");
}

}  // namespace wt::bind
