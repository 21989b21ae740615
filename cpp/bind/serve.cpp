// Served requests for Python: what passes cost as numbers by name, loads as columns; see windtunnel.engine.serve.
#include <nanobind/stl/shared_ptr.h>
#include <nanobind/stl/string.h>

#include <algorithm>
#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "base/check.h"
#include "bind/columns.h"
#include "bind/parts.h"
#include "serve/run.h"

namespace wt::bind {

namespace {

using serve::Curve;
using serve::LayerCosts;
using serve::Load;
using serve::Number;
using serve::Passing;
using serve::PassTimes;

using Doubles = Column<double>;
using Int64s = Column<std::int64_t>;

double number(const nb::dict& values, const char* name) { return nb::cast<double>(values[name]); }
Number whole(const nb::dict& values, const char* name) { return nb::cast<Number>(values[name]); }
bool flag(const nb::dict& values, const char* name) { return nb::cast<bool>(values[name]); }

std::vector<double> doubles(const nb::handle& values) {
  const auto column = nb::cast<Doubles>(values);
  return {column.data(), column.data() + column.size()};
}

// (x, y), or None for a curve that nobody reads.
Curve curve_of(const nb::dict& curves, const char* name) {
  const nb::object points = curves[name];
  if (points.is_none()) return {};
  Curve curve{doubles(points[0]), doubles(points[1])};
  if (curve.x.empty() || curve.x.size() != curve.y.size()) fail("a curve has as many numbers as places, and at least one");
  return curve;
}

LayerCosts layer_of(const nb::dict& row) {
  LayerCosts costs;
  const std::pair<const char*, double*> fields[] = {
      {"layers", &costs.layers},
      {"most", &costs.most},
      {"stride", &costs.stride},
      {"picked", &costs.picked},
      {"window", &costs.window},
      {"state", &costs.state},
      {"kept", &costs.kept},
      {"reread", &costs.reread},
      {"heads", &costs.heads},
      {"groups", &costs.groups},
      {"elements", &costs.elements},
      {"wide", &costs.wide},
      {"dim", &costs.dim},
      {"width", &costs.width},
      {"latency", &costs.latency},
      {"memory", &costs.memory},
      {"rate", &costs.rate},
      {"setup", &costs.setup},
      {"key", &costs.key},
      {"merge", &costs.merge},
      {"blend", &costs.blend},
      {"sms", &costs.sms},
      {"move_latency", &costs.move_latency},
      {"move_rate", &costs.move_rate},
      {"index_bytes", &costs.index_bytes},
      {"index_flops", &costs.index_flops},
      {"index_rate", &costs.index_rate},
  };
  for (const auto& [name, value] : fields) *value = number(row, name);
  costs.scan = flag(row, "scan");
  costs.attends = flag(row, "attends");
  costs.indexed = flag(row, "indexed");
  return costs;
}

std::shared_ptr<PassTimes> serve_passes(const nb::dict& curves, const nb::list& kinds, const nb::dict& host, Number drafts,
                                        const nb::object& draft_layer, std::shared_ptr<PassTimes> small_model) {
  auto times = std::make_shared<PassTimes>();
  times->rows = curve_of(curves, "rows");
  times->heads = curve_of(curves, "heads");
  times->own = curve_of(curves, "own");
  times->shared = curve_of(curves, "shared");
  times->draft_rows = curve_of(curves, "draft_rows");
  times->draft_heads = curve_of(curves, "draft_heads");
  times->graph_sizes = doubles(host["graph_sizes"]);
  for (const nb::handle& kind : kinds) times->kinds.push_back(layer_of(nb::cast<nb::dict>(kind)));
  times->host = {number(host, "kernels"), number(host, "prompts"),     number(host, "launched"),
                 number(host, "called"),  number(host, "gap"),         number(host, "request_gap"),
                 number(host, "sent"),    whole(host, "graph_tokens"), flag(host, "captures_prompts"),
                 flag(host, "padded")};
  if (times->host.graph_tokens > 0 && times->graph_sizes.empty()) fail("captured graphs have sizes");
  times->data_ranks = number(host, "data_ranks");
  times->drafts = drafts;
  if (!draft_layer.is_none()) times->draft_layer.push_back(layer_of(nb::cast<nb::dict>(draft_layer)));
  times->small_model = std::move(small_model);
  if (times->small_model) times->small_model->first_kind = serve::size_of(times->kinds);
  if (drafts && !times->small_model && times->draft_layer.empty()) fail("drafts come from a layer or a small model");
  return times;
}

template <class T>
serve::View<T> view(const nb::dict& columns, const char* name, std::vector<nb::object>& kept) {
  kept.push_back(columns[name]);
  return span_of(nb::cast<Column<T>>(kept.back()));
}

Load load_of(const nb::dict& columns, std::vector<nb::object>& kept) {
  Load load;
  load.prompt = view<Number>(columns, "prompt", kept);
  load.output = view<Number>(columns, "output", kept);
  load.arrival = view<double>(columns, "arrival", kept);
  load.users = whole(columns, "users");
  load.after = view<Number>(columns, "after", kept);
  load.pauses = view<double>(columns, "pauses", kept);
  load.pause = number(columns, "pause");
  load.outputs_named = flag(columns, "outputs_named");
  load.groups = view<Number>(columns, "groups", kept);
  load.group_start = view<Number>(columns, "group_start", kept);
  load.named = view<Number>(columns, "named", kept);
  load.per = whole(columns, "per");
  const Number count = load.size();
  const auto fits = [&](Number size) { return size == 0 || size == count; };
  if (load.output.size() != count || !fits(load.after.size()) || !fits(load.pauses.size()) || !fits(load.named.size()) ||
      (load.has_names() && load.group_start.size() != count + 1) || load.has_names() != (load.named.size() > 0) || load.per < 1) {
    fail("columns of a load have a number for each request");
  }
  for (Number request = 0; request < count; ++request) {
    if (load.prompt[request] < 1 || load.output[request] < 1) fail("a request has tokens");
    if (!load.after.empty() && load.after[request] >= count) fail("a request follows on one that is there");
    if (load.has_names() &&
        (load.group_start[request] < 0 || load.group_start[request + 1] > load.groups.size() ||
         serve::ceil_div(load.named[request], load.per) > load.group_start[request + 1] - load.group_start[request])) {
      fail("named blocks have groups");
    }
  }
  return load;
}

serve::Setting setting_of(const nb::dict& values, std::vector<nb::object>& kept) {
  serve::Setting setting;
  setting.rules = nb::cast<std::string>(values["rules"]);
  serve::Limits& limits = setting.limits;
  limits.step_tokens = whole(values, "step_tokens");
  limits.chunk = whole(values, "prefill_chunk");
  limits.running = whole(values, "running");
  limits.block = whole(values, "block");
  limits.polls = whole(values, "polls");
  limits.reserves_prompt = flag(values, "reserves_prompt");
  limits.keeps_blocks = flag(values, "keeps_blocks");
  limits.ahead = flag(values, "ahead");
  limits.cuts_prompts = flag(values, "cuts_prompts");
  limits.start = number(values, "ratio_start");
  limits.floor = number(values, "ratio_floor");
  limits.fall = number(values, "ratio_fall");
  limits.clip = whole(values, "clip");
  limits.retract_ahead = whole(values, "retract_ahead");
  limits.look = whole(values, "look");
  setting.drafts.drafts = whole(values, "drafts");
  setting.drafts.tokens = view<Number>(values, "draft_tokens", kept);
  setting.drafts.sums = view<Number>(values, "draft_sums", kept);
  setting.drafts.areas = view<Number>(values, "draft_areas", kept);
  setting.drafts.row = whole(values, "draft_row");
  setting.drafts.ahead = whole(values, "draft_ahead");
  setting.drafts.shift = whole(values, "draft_shift");
  setting.front = number(values, "front");
  setting.handle = number(values, "handle");
  setting.tokenise = number(values, "tokenise");
  setting.run = whole(values, "run");
  setting.blocks = whole(values, "blocks");
  setting.record = flag(values, "record");
  if (limits.block < 1 || setting.blocks < 0) fail("a cache has blocks of tokens");
  const Number row = setting.drafts.row + setting.drafts.ahead;
  if (setting.drafts.any() && (setting.drafts.tokens.size() != row || setting.drafts.sums.size() != row + 1 ||
                               setting.drafts.areas.size() != row + 2 || setting.run + 1 > setting.drafts.ahead)) {
    fail("a row of drafted passes goes on beyond its end");
  }
  return setting;
}

nb::dict dict_of(serve::Outcome&& out) {
  std::vector<double> moments;
  std::vector<Number> counts;
  for (const serve::Booking& pass : out.log) {
    moments.insert(moments.end(), {pass.begin, pass.end, pass.used});
    counts.insert(counts.end(), {pass.running, pass.waiting, pass.tokens, pass.passes});
  }
  const std::size_t passes = out.log.size();
  nb::dict answer;
  answer["sent"] = array_of(out.sent.take());
  answer["first"] = array_of(out.first.take());
  answer["last"] = array_of(out.last.take());
  answer["reused"] = array_of(out.reused.take());
  answer["losses"] = array_of(out.losses.take());
  answer["log_moments"] = array_of(std::move(moments), {passes, 3});
  answer["log_counts"] = array_of(std::move(counts), {passes, 4});
  answer["busy"] = out.busy;
  answer["peak"] = out.peak;
  answer["batch"] = out.batch;
  answer["prompts"] = out.prompts;
  answer["steps"] = out.steps;
  answer["hits"] = out.hits;
  answer["preempted"] = out.preempted;
  answer["recomputed"] = out.recomputed;
  answer["verified"] = out.verified;
  answer["rejected"] = out.rejected;
  return answer;
}

nb::list serve_run(PassTimes& passes, const nb::callable& price, const nb::dict& setting, const nb::list& loads,
                   const Int64s& counts) {
  std::vector<nb::object> kept;
  const serve::Setting how = setting_of(setting, kept);
  std::vector<Load> columns;
  for (const nb::handle& load : loads) columns.push_back(load_of(nb::cast<nb::dict>(load), kept));
  const std::vector<Number> ranks(counts.data(), counts.data() + counts.size());
  if (ranks.size() != columns.size()) fail("each load has a number of ranks");
  if (columns.size() > 1 && passes.own.x.empty()) fail("passes of several ranks have curves of their own and of shared rows");
  const serve::PromptPrice asked = [&](Number kind, const Passing& pass) {
    const nb::gil_scoped_acquire acquired;
    return nb::cast<double>(price(kind, pass.prompt, pass.chunks, pass.pairs));
  };
  std::vector<serve::Outcome> outcomes;
  {
    const nb::gil_scoped_release released;
    const std::scoped_lock held(passes.busy);
    passes.ask(&asked);
    outcomes = serve::run(how, passes, columns, ranks);
  }
  nb::list answers;
  for (serve::Outcome& out : outcomes) answers.append(dict_of(std::move(out)));
  return answers;
}

}  // namespace

void bind_serve(nb::module_& m) {
  using nb::literals::operator""_a;
  nb::class_<PassTimes>(m, "ServePasses", "What forward passes of a server cost.");
  m.def("serve_passes", &serve_passes, nb::kw_only(), "curves"_a, "kinds"_a, "host"_a, "drafts"_a, "draft_layer"_a.none(),
        "small_model"_a.none(), "See windtunnel.engine.serve.");
  m.def("serve_run", &serve_run, nb::kw_only(), "passes"_a, "price"_a, "setting"_a, "loads"_a, column("counts"),
        "Serves loads on lanes that begin each pass together; see windtunnel.engine.serve.run.");
}

}  // namespace wt::bind
