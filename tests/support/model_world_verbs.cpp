// SPDX-License-Identifier: Apache-2.0
#include "support/model_world.hpp"

#include <algorithm>
#include <stdexcept>
#include <utility>

namespace reprise::test::model {

namespace {

using Byte = std::uint8_t;

struct LeaveCapture {};

}  // namespace

// ---- answers -----------------------------------------------------------------------------------

void World::answer(const Op& op) {
  const Handle* const a = slot(op.a);
  if (a == nullptr) return;
  const Handle what = part(*a, op.at, op.n);
  Stream& stream = stream_of(op);
  switch (op.code) {
    case Code::read: read(op); break;
    case Code::async_read: async_read(op); break;
    case Code::check: check(op); break;
    case Code::restore:
      stream.real.restore({what.real});
      model_.restore(what.span);
      break;
    default: {
      const Codes codes = model_.codes_of(what.span);
      const FailurePtr failure = stream.real.failure(what.real);
      judge({codes, codes == 0 || !model_.is_settled()}, failure.get(), 0);
    }
  }
}

void World::read(const Op& op) {
  const Handle from = part(*slot(op.a), op.at, op.n);
  Stream& stream = stream_of(op);
  const Expected expected = model_.read(*stream.model, from.span);
  std::vector<Byte> seen;
  try {
    seen = stream.real.read(from.real);
  } catch (const Failure& failure) {
    return judge(expected, &failure.record(), 0);
  }
  judge(expected, nullptr, 0);
  const auto begin = static_cast<std::ptrdiff_t>(from.span.begin);
  const auto end = static_cast<std::ptrdiff_t>(from.span.end);
  const Allocation& memory = *from.span.memory;
  compare(seen, {memory.value.begin() + begin, memory.value.begin() + end},
          {memory.known.begin() + begin, memory.known.begin() + end});
}

void World::async_read(const Op& op) {
  const Handle from = part(*slot(op.a), op.at, op.n);
  Stream& stream = stream_of(op);
  const Expected expected = model_.read(*stream.model, from.span);
  const auto begin = static_cast<std::ptrdiff_t>(from.span.begin);
  const auto end = static_cast<std::ptrdiff_t>(from.span.end);
  const Allocation& memory = *from.span.memory;
  reads_.push_back({stream.real.async_read(from.real),
                    expected,
                    {memory.value.begin() + begin, memory.value.begin() + end},
                    {memory.known.begin() + begin, memory.known.begin() + end},
                    at_});
}

void World::check(const Op& op) {
  const Handle what = part(*slot(op.a), op.at, op.n);
  const Health health = stream_of(op).real.check({what.real});
  const bool failed = model_.codes_of(what.span) != 0;
  const bool right = health == Health::pending
                         ? (failed ? !model_.is_settled() : !model_.is_quiet())
                         : failed == (health == Health::failed);
  if (right) return;
  const char* const names[]{"clean", "pending", "failed"};
  fail(std::string("check says ") + names[static_cast<int>(health)] + ", the model " +
       (failed ? "failed" : "clean"));
}

// ---- captures ----------------------------------------------------------------------------------

void World::seal(const Op& op, const StreamPtr& stream, const reprise::Graph& graph) {
  const GraphPtr model = model_.stopped(*stream);
  if (!model || !graph) {
    if (static_cast<bool>(graph) != (model != nullptr)) fail("one side alone sealed a graph");
    return;
  }
  std::uint64_t guarded = 0;
  for (const AllocationPtr& memory : model->memory) guarded += memory->value.size();
  if (graph.node_count() != model->nodes.size()) fail("another number of nodes");
  if (graph.guarded_bytes() != guarded) fail("another number of guarded bytes");
  graphs_[op.a % graphs_.size()] = {graph, model};
}

std::size_t World::capture(const Op& op, std::size_t i) {
  const std::size_t inside = std::min<std::size_t>(op.n % 12, sequence_.ops.size() - i - 1);
  const bool leaves = op.value % 4 == 0;
  Client outer = clients_[op.who % clients_.size()].real;
  auto stream = std::make_shared<model::Stream>();
  std::size_t used = 0;
  try {
    const reprise::Graph graph = outer.capture([&](Client& client) {
      (void)model_.prepare(*stream);
      model_.started(*stream, true);
      scopes_.push_back({client, stream});
      while (used < inside && problem_.empty()) used += step(i + 1 + used);
      at_ = i;
      scopes_.pop_back();
      if (leaves) throw LeaveCapture{};
    });
    judge(model_.stop(*stream), nullptr, 0);
    seal(op, stream, graph);
  } catch (const LeaveCapture&) {
    model_.abandon(*stream, Errc::capture_doomed);
  } catch (const Failure& failure) {
    judge(model_.stop(*stream), &failure.record(), 0);
    seal(op, stream, {});
  }
  return used;
}

std::size_t World::window(const Op& op, std::size_t i) {
  if (op.code == Code::capture) return scopes_.size() < 2 ? capture(op, i) : 0;
  const Stream stream = stream_of(op);
  switch (op.code) {
    case Code::prepare:
      attempt(model_.prepare(*stream.model),
              [&] { stream.real.prepare_capture({.growth = (op.a & 1) != 0}); });
      break;
    case Code::start: {
      const Expected expected = model_.start(*stream.model);
      model_.started(*stream.model, attempt(expected, [&] { stream.real.start_capture(); }));
      break;
    }
    case Code::stop: {
      reprise::Graph graph;
      attempt(model_.stop(*stream.model), [&] { graph = stream.real.stop_capture(); });
      seal(op, stream.model, graph);
      break;
    }
    default: attempt(model_.abort(*stream.model), [&] { stream.real.abort_capture(); });
  }
  if (stream.real.is_capturing() != (stream.model->open() != nullptr)) {
    fail("is_capturing disagrees");
  }
  return 0;
}

// ---- graphs ------------------------------------------------------------------------------------

void World::graph(const Op& op) {
  Replayable& graph = graphs_[op.a % graphs_.size()];
  if (!graph.model) return;
  switch (op.code) {
    case Code::share_graph: graphs_[op.b % graphs_.size()] = Replayable(graph); return;
    case Code::drop_graph: graph = {}; return;
    case Code::try_replay:
      if (graph.real.try_replay()) (void)model_.replay(*graph.model);
      return;
    default: break;
  }
  const ReferenceModel::Replay answer = model_.replay(*graph.model);
  switch (op.code) {
    case Code::replay:
      attempt(
          answer.accepted, [&] { graph.real.replay(); }, answer.causes);
      break;
    case Code::run:
      attempt(
          answer.finished, [&] { graph.real.run(); }, answer.causes);
      break;
    case Code::async_replay:
      voids_.push_back({graph.real.async_replay(), answer.accepted, answer.causes, at_});
      break;
    default: voids_.push_back({graph.real.async_run(), answer.finished, answer.causes, at_}); break;
  }
}

// ---- clients -----------------------------------------------------------------------------------

/// What the last client of a stream left open ends at its place in the order.
void World::replaced(const Stream& old) {
  if (old.model.use_count() == 1) model_.dropped(*old.model);
}

void World::client(const Op& op) {
  Stream& stream = stream_of(op);
  Stream& target = clients_[op.a % clients_.size()];
  switch (op.code) {
    case Code::fork: {
      const Client forked = stream.real.fork();
      auto model = std::make_shared<model::Stream>();
      model_.fork(*stream.model, *model);
      replaced(target);
      target = Stream{forked, std::move(model)};
      break;
    }
    case Code::share_client: {
      const Stream copy = stream;
      if (copy.model == target.model) return;
      replaced(target);
      target = copy;
      break;
    }
    case Code::join:
      stream.real.join(target.real);
      model_.join(*stream.model, *target.model);
      break;
    case Code::flush: stream.real.flush(); break;
    case Code::synchronize:
      attempt(stream.model->is_recording() ? Expected{code(Errc::capture_refused), false}
                                           : Expected{},
              [&] { stream.real.synchronize(); });
      break;
    case Code::record:
      events_[op.a % events_.size()] =
          Marked{stream.real.record(), stream.model->newest, stream.model->is_recording(),
                 stream.model->open() ? stream.model->window->owner : 0};
      break;
    default: {
      const auto& event = events_[op.a % events_.size()];
      if (!event) return;
      stream.real.wait(event->real);
      // Nobody is told that a posted verb was refused but who closes the window.
      if (!stream.model->is_recording()) break;
      if (!event->in_window || event->owner != stream.model->window->owner) {
        model_.doom(*stream.model, code(Errc::capture_refused));
      }
    }
  }
}

// ---- the device --------------------------------------------------------------------------------

void World::device(const Op& op) {
  switch (op.code) {
    case Code::quiet: quiet(); break;
    case Code::await_all: await_all(); break;
    case Code::trim: (void)device_.trim(); break;
    case Code::turns:
      for (int i = op.n % 32; host_ && i > 0 && host_->run_one(host_->now_ns()); --i) {
      }
      break;
    default: {
      const auto& event = events_[op.a % events_.size()];
      if (!event) return;
      const Expected expected = event->in_window ? Expected{code(Errc::capture_refused), false}
                                                 : Expected{event->codes, event->codes == 0};
      attempt(expected, [&] { event->real.wait(); });
    }
  }
}

void World::quiet() {
  device_.synchronize();
  model_.synchronized();
  if (host_calls_.load() != model_.host_calls()) {
    fail(std::to_string(host_calls_.load()) + " host calls, not " +
         std::to_string(model_.host_calls()));
  }
  if (exchange_ == nullptr) check_memory();
}

void World::check_memory() {
  const MemoryReport report = device_.memory_report();
  const std::uint64_t expected = model_.in_use() + anchor_.size_bytes();
  if (report.pool.in_use != expected) {
    fail(std::to_string(report.pool.in_use) + " bytes in use, not " + std::to_string(expected));
  }
  if (report.pool.guarded != model_.guarded()) {
    fail(std::to_string(report.pool.guarded) + " bytes guarded, not " +
         std::to_string(model_.guarded()));
  }
}

void World::await_all() {
  const std::size_t now = at_;
  for (PendingRead& read : reads_) {
    at_ = read.step;
    std::vector<Byte> seen;
    const bool good = attempt(read.expected, [&] { seen = read.future.get(); });
    if (good) compare(seen, read.bytes, read.known);
  }
  for (PendingVoid& pending : voids_) {
    at_ = pending.step;
    attempt(
        pending.expected, [&] { pending.future.get(); }, pending.causes);
  }
  at_ = now;
  reads_.clear();
  voids_.clear();
  borrowed_.clear();
}

// ---- a whole sequence --------------------------------------------------------------------------

DeviceOptions options_of(const Setting& s) {
  DeviceOptions options;
  options.workers = s.workers % 3;
  options.ring_capacity = 2u << (s.ring % 6);
  options.in_flight = 1 + s.in_flight % 24;
  options.streams = 1 + s.streams % 8;
  options.in_flight_per_stream = 1 + s.credit % 32;
  options.help_while_waiting = (s.host & 128) == 0;
  options.memory_limit_bytes = 64u << 20;
  return options;
}

World::World(const Sequence& sequence, HostKind kind) : sequence_(sequence), kind_(kind) {
  const Setting& s = sequence.setting;
  RuntimeOptions options;
  if (kind == HostKind::seeded) {
    SeededOptions seeded;
    seeded.seed = static_cast<std::uint64_t>(s.seed_low | s.seed_high << 8) + 1;
    seeded.order = static_cast<SeededOptions::Order>(s.host % 3);
    host_.emplace(seeded);
    options.host = &*host_;
  }
  runtime_.emplace(options);
  device_ = runtime_->open("cpu:0", options_of(s));
  open();
}

World::World(const Sequence& sequence, const Device& device, Exchange& exchange,
             std::uint32_t number)
    : sequence_(sequence), kind_(HostKind::real), device_(device), exchange_(&exchange),
      model_(number) {
  open();
}

void World::open() {
  for (Stream& stream : clients_) stream = {device_.client(), std::make_shared<model::Stream>()};
  anchor_ = clients_[0].real.zeros<Byte>(1);
}

/// Leaves a buffer that nothing else of this world names, and takes what lies there.
void World::exchange(std::size_t i) {
  auto& handle = handles_[i % handles_.size()];
  if (handle && (handle->span.memory.use_count() > 1 || handle->span.memory->window != 0)) return;
  handle = exchange_->swap(std::move(handle));
  if (handle) model_.adopt(handle->span.memory);
}

std::size_t World::step(std::size_t i) {
  const Op& op = sequence_.ops[i];
  at_ = i;
  ++operations_;
  if (op.code <= Code::drop) {
    memory(op);
  } else if (op.code <= Code::host_call) {
    work(op);
  } else if (op.code <= Code::restore) {
    answer(op);
  } else if (op.code <= Code::abort) {
    return 1 + window(op, i);
  } else if (op.code <= Code::drop_graph) {
    graph(op);
  } else if (op.code <= Code::wait || op.code == Code::join) {
    client(op);
  } else {
    device(op);
  }
  return 1;
}

void World::drop_everything() {
  for (Stream& stream : clients_) {
    replaced(stream);
    stream = {};
  }
  handles_.fill(std::nullopt);
  graphs_.fill({});
  events_.fill(std::nullopt);
}

void World::finish() {
  at_ = sequence_.ops.size();
  await_all();
  // Everything that handles still name is read once more.
  for (std::size_t i = 0; i < handles_.size() && problem_.empty(); ++i) {
    if (!handles_[i]) continue;
    const Client client = device_.client();
    const Stream saved = std::exchange(clients_[0], {client, std::make_shared<model::Stream>()});
    read({.code = Code::read, .a = static_cast<std::uint8_t>(i)});
    clients_[0] = saved;
  }
  if (!problem_.empty()) return;
  quiet();
  drop_everything();
  if (exchange_ != nullptr) return;
  quiet();
  const MemoryReport report = device_.memory_report();
  if (!report.graphs.empty() || report.pool.guarded != 0) fail("a graph is left");
  anchor_ = {};
  device_.drain();
}

Outcome World::run() {
  for (std::size_t i = 0; i < sequence_.ops.size() && problem_.empty();) {
    i += step(i);
    if (exchange_ != nullptr) exchange(i);
  }
  if (problem_.empty()) finish();
  return {problem_, operations_};
}

}  // namespace reprise::test::model
