// SPDX-License-Identifier: Apache-2.0
#include "support/reference_model.hpp"

#include <algorithm>
#include <array>
#include <set>
#include <stdexcept>

namespace reprise::test::model {

// ---- kernels -----------------------------------------------------------------------------------

std::span<const Access> modes_of(Body body) noexcept {
  static constexpr Access in = Access::reads;
  static constexpr Access out = Access::must_write;
  static constexpr Access both = Access::reads | Access::must_write;
  static constexpr Access update = Access::may_write;
  static constexpr std::array<Access, 2> in_out{in, out};
  static constexpr std::array<Access, 3> in_in_out{in, in, out};
  static constexpr std::array<Access, 1> in_place{both};
  static constexpr std::array<Access, 1> updated{update};
  static constexpr std::array<Access, 1> written{out};
  switch (body) {
    case Body::add_one:
    case Body::fail: return in_out;
    case Body::mix:
    case Body::fail_if: return in_in_out;
    case Body::bump:
    case Body::shake: return in_place;
    case Body::poke:
    case Body::stab: return updated;
    default: return written;
  }
}

namespace {

std::uint8_t cell(const Cells& cells, std::size_t i) {
  return i < cells.size ? cells.data[i] : std::uint8_t{0};
}

void add_one(const Cells& in, const Cells& out, IndexRange part) {
  for (std::size_t i : part) out.data[i] = static_cast<std::uint8_t>(cell(in, i) + 1);
}

[[noreturn]] void give_up() {
  throw std::runtime_error("asked to fail");
}

}  // namespace

void run_body(Body body, std::span<const Cells> cells, std::uint8_t at, std::uint8_t value,
              IndexRange part) {
  const Cells& first = cells[0];
  switch (body) {
    case Body::add_one: return add_one(first, cells[1], part);
    case Body::mix:
      for (std::size_t i : part) {
        cells[2].data[i] = static_cast<std::uint8_t>(cell(first, i) ^ (cell(cells[1], i) * 3));
      }
      return;
    case Body::bump:
      for (std::size_t i : part) first.data[i] = static_cast<std::uint8_t>(first.data[i] + value);
      return;
    case Body::poke:
      if (first.size != 0) first.data[at % first.size] = value;
      return;
    case Body::fail:
      add_one(first, cells[1], {part.first, part.first + part.size() / 2});
      give_up();
    case Body::fail_if:
      if ((cell(first, 0) & 1) != 0) give_up();
      return add_one(cells[1], cells[2], part);
    case Body::shake:
      for (std::size_t i : part) {
        first.data[i] = static_cast<std::uint8_t>(first.data[i] + value);
        if ((first.data[i] & 7) == 0) give_up();
      }
      return;
    case Body::seed:
      for (std::size_t i : part) first.data[i] = static_cast<std::uint8_t>(value + i);
      return;
    default:
      if (first.size != 0) first.data[at % first.size] = value;
      if ((value & 1) != 0) give_up();
  }
}

// ---- bytes -------------------------------------------------------------------------------------

namespace {

void push(Allocation& memory, std::size_t i, Claim claim, bool settled) {
  std::vector<Claim>& stack = memory.claims[i];
  // Who asks before the failure is known may be told what was there before, restored or not.
  for (const Claim& before : stack) claim.codes |= settled ? 0 : before.codes;
  if (claim.kind != Claim::Kind::not_started) {
    stack.assign(1, claim);
    if (claim.kind == Claim::Kind::ran) memory.known[i] = 0;
    return;
  }
  std::erase_if(stack, [&](const Claim& old) {
    return old.kind == Claim::Kind::not_started && old.owner == claim.owner;
  });
  stack.push_back(claim);
}

/// Calls f(memory, byte) for each byte of the arguments that `wanted` holds for.
template <class Wanted, class F>
void each_byte(const Command& command, Wanted&& wanted, F&& f) {
  for (const Argument& argument : command.arguments) {
    if (!wanted(argument.access)) continue;
    for (std::size_t i = argument.span.begin; i < argument.span.end; ++i) {
      f(*argument.span.memory, i);
    }
  }
}

void claim(const Command& command, const Claim& claim, bool settled) {
  each_byte(command, may_write,
            [&](Allocation& memory, std::size_t i) { push(memory, i, claim, settled); });
}

void clear(const Command& command) {
  each_byte(command, must_write,
            [](Allocation& memory, std::size_t i) { memory.claims[i].clear(); });
}

void lift(const Command& command, std::uint64_t owner) {
  each_byte(command, may_write, [&](Allocation& memory, std::size_t i) {
    std::erase_if(memory.claims[i], [&](const Claim& old) {
      return old.kind == Claim::Kind::not_started && old.owner == owner;
    });
  });
}

Codes failed_memory(const Command& command) {
  for (const Argument& argument : command.arguments) {
    if (argument.span.memory->failed != 0) return argument.span.memory->failed;
  }
  return 0;
}

/// Copies, fills and writes of nothing and launches of no block.
bool does_nothing(const Command& command) {
  switch (command.verb) {
    case Command::Verb::launch: return command.no_grid;
    case Command::Verb::host_call: return false;
    default: return command.arguments[0].span.size() == 0;
  }
}

}  // namespace

bool ReferenceModel::run(const Command& command) {
  if (command.verb == Command::Verb::host_call) {
    ++host_calls_;
    return command.value == 0;
  }
  std::vector<Cells> cells;
  for (const Argument& argument : command.arguments) {
    cells.push_back(
        {argument.span.memory->value.data() + argument.span.begin, argument.span.size()});
  }
  const Argument& target =
      command
          .arguments[command.verb == Command::Verb::launch ? modes_of(command.body).size() - 1 : 0];
  for (std::size_t i = target.span.begin; i < target.span.end; ++i) {
    if (must_write(target.access)) target.span.memory->known[i] = 1;
  }
  switch (command.verb) {
    case Command::Verb::copy: std::copy_n(cells[1].data, cells[1].size, cells[0].data); return true;
    case Command::Verb::fill: std::fill_n(cells[0].data, cells[0].size, command.value); return true;
    case Command::Verb::write:
      std::copy(command.data.begin(), command.data.end(), cells[0].data);
      return true;
    default: break;
  }
  try {
    run_body(command.body, cells, command.at, command.value, {0, cells.back().size});
    return true;
  } catch (const std::runtime_error&) {
    return false;
  }
}

// ---- memory ------------------------------------------------------------------------------------

AllocationPtr ReferenceModel::allocate(Stream& stream, std::size_t bytes, Codes failed) {
  auto memory = std::make_shared<Allocation>();
  memory->value.resize(bytes);
  memory->known.resize(bytes);
  memory->failed = failed;
  const Claim fresh{failed != 0 ? Claim::Kind::ran : Claim::Kind::unwritten, 0,
                    failed != 0 ? failed : code(Errc::unwritten)};
  memory->claims.assign(bytes, {fresh});
  if (stream.is_recording()) {
    memory->window = stream.window->id;
    if (failed != 0 && stream.window->doom == 0) stream.window->doom = failed;
  }
  allocations_.push_back(memory);
  return memory;
}

std::uint64_t ReferenceModel::in_use() const {
  std::uint64_t bytes = 0;
  for (const auto& weak : allocations_) {
    const AllocationPtr memory = weak.lock();
    if (memory && memory->failed == 0) bytes += memory->value.size();
  }
  return bytes;
}

std::uint64_t ReferenceModel::guarded() const {
  std::set<AllocationPtr> guarded;
  for (const auto& weak : graphs_) {
    if (const GraphPtr graph = weak.lock())
      guarded.insert(graph->memory.begin(), graph->memory.end());
  }
  std::uint64_t bytes = 0;
  for (const AllocationPtr& memory : guarded) bytes += memory->value.size();
  return bytes;
}

Codes ReferenceModel::codes_of(const Span& span) const {
  Codes codes = 0;
  for (std::size_t i = span.begin; i < span.end; ++i) {
    const auto& stack = span.memory->claims[i];
    if (!stack.empty()) codes |= stack.back().codes;
  }
  return codes;
}

void ReferenceModel::restore(const Span& span) {
  for (std::size_t i = span.begin; i < span.end; ++i) {
    std::erase_if(span.memory->claims[i],
                  [](const Claim& old) { return old.kind == Claim::Kind::not_started; });
  }
}

// ---- work --------------------------------------------------------------------------------------

Expected ReferenceModel::refuse(Stream& stream, const Command& command, Codes codes) {
  claim(command, {Claim::Kind::not_started, 0, codes}, settled_);
  stream.newest = codes;
  if (stream.open()) stream.window->warm_up = Window::WarmUp::failed;
  return {codes, false};
}

Expected ReferenceModel::skip(Stream& stream, const Command& command, Codes codes) {
  claim(command, {Claim::Kind::not_started, 0, codes}, settled_);
  stream.newest = codes | code(Errc::skipped);
  if (stream.open() && stream.window->warm_up == Window::WarmUp::good) {
    stream.window->warm_up = settled_ ? Window::WarmUp::failed : Window::WarmUp::unknown;
  }
  return {code(Errc::skipped), !settled_};
}

Expected ReferenceModel::submit(Stream& stream, const Command& command) {
  touch();
  if (does_nothing(command)) return {};
  if (stream.is_recording()) return record(stream, command);
  if (const Codes codes = failed_memory(command)) return refuse(stream, command, codes);
  if (command.bad_grid) return refuse(stream, command, code(Errc::invalid_argument));
  Codes codes = 0;
  for (const Argument& argument : command.arguments) {
    if (reads(argument.access)) codes |= codes_of(argument.span);
  }
  if (codes != 0) return skip(stream, command, codes);
  if (run(command)) {
    clear(command);
    stream.newest = 0;
  } else {
    settled_ = false;
    claim(command, {Claim::Kind::ran, 0, code(Errc::kernel_failed)}, settled_);
    stream.newest = code(Errc::kernel_failed);
  }
  return {};
}

Expected ReferenceModel::read(Stream& stream, const Span& span) {
  if (span.size() == 0) return {};
  if (stream.is_recording()) {
    stream.newest = code(Errc::capture_refused);
    return {stream.newest, false};
  }
  touch();
  const Codes codes = codes_of(span);
  stream.newest = codes;
  if (codes != 0 && stream.open() && stream.window->warm_up == Window::WarmUp::good) {
    const bool known = settled_ || span.memory->failed != 0;
    stream.window->warm_up = known ? Window::WarmUp::failed : Window::WarmUp::unknown;
  }
  return {codes, codes == 0};
}

// ---- captures ----------------------------------------------------------------------------------

Expected ReferenceModel::record(Stream& stream, const Command& command) {
  Window& window = *stream.window;
  Codes doom = failed_memory(command);
  if (doom == 0 && command.bad_grid) doom = code(Errc::invalid_argument);
  each_byte(command, reads, [&](const Allocation& memory, std::size_t i) {
    if (doom != 0 || memory.window != window.id) return;
    bool written = false;
    for (const Command& node : window.nodes) {
      each_byte(node, may_write, [&](const Allocation& other, std::size_t j) {
        written = written || (&other == &memory && i == j);
      });
    }
    if (!written) doom = code(Errc::unwritten);
  });
  stream.newest = doom;
  if (doom == 0) {
    window.nodes.push_back(command);
    // Memory of which it names no byte is not kept.
    for (Argument& argument : window.nodes.back().arguments) {
      if (argument.span.size() == 0) argument.span = {std::make_shared<Allocation>(), 0, 0};
    }
    return {};
  }
  if (window.doom == 0) window.doom = doom;
  return {doom, false};
}

Expected ReferenceModel::prepare(Stream& stream) {
  if (stream.open()) return {code(Errc::capture_order), false};
  stream.window = std::make_shared<Window>();
  stream.window->id = next_id_++;
  stream.window->owner = stream.id;
  stream.forked = false;
  return {};
}

Expected ReferenceModel::start(const Stream& stream) const {
  if (!stream.open() || stream.window->recording) return {code(Errc::capture_order), false};
  if (stream.window->warm_up == Window::WarmUp::good) return {};
  return {code(Errc::capture_doomed), stream.window->warm_up == Window::WarmUp::unknown};
}

void ReferenceModel::started(Stream& stream, bool succeeded) {
  if (!stream.open() || stream.window->recording) return;
  if (succeeded) {
    stream.window->recording = true;
  } else {
    close(stream);
  }
}

Expected ReferenceModel::stop(const Stream& stream) const {
  if (!stream.is_recording() || stream.is_forked()) return {code(Errc::capture_order), false};
  if (stream.window->doom != 0 || stream.window->unjoined != 0) {
    return {code(Errc::capture_doomed), false};
  }
  return {};
}

GraphPtr ReferenceModel::stopped(Stream& stream) {
  if (stream.is_forked()) return nullptr;
  if (!stream.is_recording()) {
    close(stream);
    return nullptr;
  }
  if (stream.window->doom != 0 || stream.window->unjoined != 0) {
    abandon(stream, Errc::capture_doomed);
    return nullptr;
  }
  auto graph = std::make_shared<Graph>();
  graph->id = next_id_++;
  graph->nodes = std::move(stream.window->nodes);
  seal(*graph);
  graphs_.push_back(graph);
  close(stream);
  return graph;
}

void ReferenceModel::abandon(Stream& stream, Errc errc) {
  if (stream.is_recording()) {
    for (const Command& node : stream.window->nodes) {
      claim(node, {Claim::Kind::not_started, 0, code(errc)}, settled_);
    }
  }
  close(stream);
}

void ReferenceModel::close(Stream& stream) {
  if (stream.window) {
    stream.window->closed = true;
    stream.window->nodes.clear();
  }
  stream.window.reset();
}

Expected ReferenceModel::abort(Stream& stream) {
  if (stream.is_forked()) return {code(Errc::capture_order), false};
  close(stream);
  return {};
}

void ReferenceModel::fork(const Stream& from, Stream& made) {
  if (!from.is_recording()) return;
  made.window = from.window;
  made.forked = true;
  ++made.window->unjoined;
}

void ReferenceModel::join(Stream& stream, Stream& other) {
  if (&stream == &other || !stream.is_recording()) return;
  if (!other.is_forked() || other.window != stream.window) {
    return doom(stream, code(Errc::capture_refused));
  }
  --other.window->unjoined;
  other.window.reset();
}

void ReferenceModel::dropped(Stream& stream) {
  if (!stream.open()) return;
  if (!stream.is_forked()) return abandon(stream, Errc::capture_abandoned);
  doom(stream, code(Errc::capture_order));
  --stream.window->unjoined;
}

void ReferenceModel::seal(Graph& graph) {
  struct Written {
    const Allocation* memory;
    std::size_t byte;
  };
  std::vector<Written> written;
  for (const Command& node : graph.nodes) {
    for (const Argument& argument : node.arguments) {
      const AllocationPtr& memory = argument.span.memory;
      if (argument.span.size() != 0 &&
          std::find(graph.memory.begin(), graph.memory.end(), memory) == graph.memory.end()) {
        graph.memory.push_back(memory);
      }
      if (!reads(argument.access)) continue;
      for (std::size_t i = argument.span.begin; i < argument.span.end; ++i) {
        const bool own = std::any_of(written.begin(), written.end(), [&](const Written& one) {
          return one.memory == memory.get() && one.byte == i;
        });
        if (!own) graph.inputs.push_back({memory, i, i + 1});
      }
    }
    each_byte(node, must_write, [&](const Allocation& memory, std::size_t i) {
      written.push_back({&memory, i});
    });
  }
}

// ---- replays -----------------------------------------------------------------------------------

namespace {

struct Spoiled {
  std::vector<std::pair<const Allocation*, std::size_t>> bytes;

  bool reaches(const Command& node) const {
    bool reached = false;
    each_byte(node, reads, [&](const Allocation& memory, std::size_t i) {
      reached =
          reached || std::find(bytes.begin(), bytes.end(), std::pair{&memory, i}) != bytes.end();
    });
    return reached;
  }
  void add(const Command& node) {
    each_byte(node, may_write,
              [&](const Allocation& memory, std::size_t i) { bytes.emplace_back(&memory, i); });
  }
  void mend(const Command& node) {
    each_byte(node, must_write, [&](const Allocation& memory, std::size_t i) {
      std::erase(bytes, std::pair{&memory, i});
    });
  }
};

}  // namespace

ReferenceModel::Replay ReferenceModel::replay(const Graph& graph) {
  if (graph.nodes.empty()) return {};
  touch();
  Codes causes = 0;
  Codes bad = 0;
  for (const Span& input : graph.inputs) {
    const auto& stack = input.memory->claims[input.begin];
    if (stack.empty()) continue;
    causes |= stack.back().codes;
    const bool own = stack.size() == 1 && stack[0].kind == Claim::Kind::not_started &&
                     stack[0].owner == graph.id;
    if (!own) bad |= stack.back().codes;
  }
  if (bad != 0) {
    for (const Command& node : graph.nodes) {
      claim(node, {Claim::Kind::not_started, graph.id, causes}, settled_);
    }
    const Codes skipped = code(Errc::skipped);
    return {{skipped, !settled_}, {settled_ ? skipped : skipped | causes, false}, causes};
  }
  Spoiled spoiled;
  Replay answer;
  for (const Command& node : graph.nodes) {
    if (spoiled.reaches(node)) {
      claim(node, {Claim::Kind::not_started, 0, code(Errc::kernel_failed)}, false);
      spoiled.add(node);
    } else if (run(node)) {
      clear(node);
      lift(node, graph.id);
      spoiled.mend(node);
    } else {
      claim(node, {Claim::Kind::ran, 0, code(Errc::kernel_failed)}, false);
      spoiled.add(node);
      answer.finished = {code(Errc::kernel_failed), false};
    }
  }
  if (!answer.finished.may_succeed) settled_ = false;
  return answer;
}

}  // namespace reprise::test::model
