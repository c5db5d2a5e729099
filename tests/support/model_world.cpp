// SPDX-License-Identifier: Apache-2.0
#include "support/model_world.hpp"

#include <algorithm>
#include <set>

namespace reprise::test::model {

namespace {

using Byte = std::uint8_t;

template <class T>
Cells cells(const T& view) {
  return {const_cast<Byte*>(view.data()), view.size()};
}

// ---- the kernels, as the device sees them ------------------------------------------------------

template <Body body>
auto two(const char* name) {
  return Kernel{name, [](const Block& block, In<Byte> in, Out<Byte> out) {
                  const Cells all[]{cells(in), cells(out)};
                  run_body(body, all, 0, 0, block.range(out.size()));
                }};
}
template <Body body>
auto three(const char* name) {
  return Kernel{name, [](const Block& block, In<Byte> a, In<Byte> b, Out<Byte> out) {
                  const Cells all[]{cells(a), cells(b), cells(out)};
                  run_body(body, all, 0, 0, block.range(out.size()));
                }};
}
template <Body body, template <class> class Mode>
auto one(const char* name) {
  return Kernel{name, [](const Block& block, Mode<Byte> x, Byte at, Byte value) {
                  const Cells all[]{cells(x)};
                  run_body(body, all, at, value, block.range(x.size()));
                }};
}

const auto add_one_kernel = two<Body::add_one>("add_one");
const auto fail_kernel = two<Body::fail>("fail");
const auto mix_kernel = three<Body::mix>("mix");
const auto fail_if_kernel = three<Body::fail_if>("fail_if");
const auto bump_kernel = one<Body::bump, InOut>("bump");
const auto shake_kernel = one<Body::shake, InOut>("shake");
const auto poke_kernel = one<Body::poke, Update>("poke");
const auto stab_kernel = one<Body::stab, Update>("stab");
const auto seed_kernel = one<Body::seed, Out>("seed");

}  // namespace

// ---- helpers -----------------------------------------------------------------------------------

void World::fail(const std::string& what) {
  if (!problem_.empty()) return;
  problem_ = "step " + std::to_string(at_) + ": " + what;
  if (at_ < sequence_.ops.size()) problem_ += ", at " + to_text(sequence_.ops[at_]);
}

void World::judge(const Expected& expected, const FailureRecord* failure, Codes causes) {
  if (failure == nullptr) {
    if (!expected.may_succeed) fail("succeeded where the model fails");
  } else if ((expected.codes & code(failure->code)) == 0) {
    fail("failed with " + failure->text() +
         (expected.codes == 0 ? ", the model succeeds" : ", the model has another code"));
  } else if (failure->code == Errc::skipped && causes != 0 &&
             (!failure->cause || (causes & code(failure->cause->code)) == 0)) {
    fail("skipped for another cause: " + failure->text());
  }
}

template <class Plain, class Try, class Async>
void World::post(const Op& op, const Command& command, Plain&& plain, Try&& attempt_it,
                 Async&& async) {
  Stream& stream = stream_of(op);
  switch (form_of(op)) {
    case Form::plain: attempt({}, [&] { plain(stream.real); }); break;
    case Form::attempt:
      // Without room nothing has happened.
      if (!attempt_it(stream.real)) return;
      break;
    case Form::async: {
      Future<void> future = async(stream.real);
      voids_.push_back({std::move(future), model_.submit(*stream.model, command), 0, at_});
      return;
    }
  }
  (void)model_.submit(*stream.model, command);
}

void World::compare(const std::vector<Byte>& seen, const std::vector<Byte>& bytes,
                    const std::vector<Byte>& known) {
  for (std::size_t i = 0; i < seen.size(); ++i) {
    if (known[i] == 0 || seen[i] == bytes[i]) continue;
    return fail("byte " + std::to_string(i) + " is " + std::to_string(seen[i]) + ", not " +
                std::to_string(bytes[i]));
  }
}

World::Stream& World::stream_of(const Op& op) {
  if (!scopes_.empty() && (op.who & 4) == 0) return scopes_.back();
  return clients_[op.who % clients_.size()];
}

Handle* World::slot(std::uint8_t number) {
  auto& handle = handles_[number % handles_.size()];
  return handle ? &*handle : nullptr;
}

Handle World::part(const Handle& handle, std::uint8_t at, std::uint8_t n) const {
  const std::size_t size = handle.span.size();
  if (n == 0) return handle;
  const std::size_t from = at % (size + 1);
  const std::size_t count = n % (size - from + 1);
  return {handle.real.slice(from, count),
          {handle.span.memory, handle.span.begin + from, handle.span.begin + from + count}};
}

World::Form World::form_of(const Op& op) {
  constexpr Form forms[]{Form::plain, Form::plain, Form::attempt, Form::async};
  return forms[op.who >> 4 & 3];
}

// ---- memory ------------------------------------------------------------------------------------

void World::memory(const Op& op) {
  Handle* const a = slot(op.a);
  Handle* const b = slot(op.b);
  switch (op.code) {
    case Code::slice:
      if (a != nullptr) handles_[op.b % handles_.size()] = part(Handle(*a), op.at, op.n);
      break;
    case Code::share:
      if (a != nullptr) handles_[op.b % handles_.size()] = Handle(*a);
      break;
    case Code::drop: handles_[op.a % handles_.size()].reset(); break;
    case Code::carve:
      if (a == nullptr || b == nullptr) carve(op);
      break;
    default: allocate(op); break;
  }
}

void World::allocate(const Op& op) {
  Stream& stream = stream_of(op);
  auto& target = handles_[op.a % handles_.size()];
  const std::size_t size = op.n % 49;
  Handle handle;
  handle.span.end = size;
  switch (op.code) {
    case Code::zeros: handle.real = stream.real.zeros<Byte>(size); break;
    case Code::create:
      handle.real = stream.real.create<Byte>(std::vector<Byte>(size, op.value));
      break;
    case Code::huge:
      handle.real = stream.real.empty<Byte>(std::size_t{1} << 30).slice(0, 64);
      handle.span = {model_.allocate(*stream.model, 64, code(Errc::never_fits)), 0, 64};
      break;
    default: handle.real = stream.real.empty<Byte>(size); break;
  }
  if (op.code != Code::huge) handle.span.memory = model_.allocate(*stream.model, size);
  if (op.code == Code::zeros || op.code == Code::create) {
    Command command{.verb = Command::Verb::fill,
                    .arguments = {{handle.span, Access::must_write}},
                    .value = op.code == Code::zeros ? Byte{0} : op.value};
    (void)model_.submit(*stream.model, command);
  }
  target = std::move(handle);
}

void World::carve(const Op& op) {
  Stream& stream = stream_of(op);
  const std::size_t first = op.n % 49;
  const std::vector<std::size_t> counts{first, 8};
  const std::size_t offset = first == 0 ? 0 : 256;
  auto arrays = stream.real.create_many<Byte>(counts);
  const AllocationPtr memory = model_.allocate(*stream.model, offset + 8);
  handles_[op.a % handles_.size()] = Handle{arrays[0], {memory, 0, first}};
  handles_[op.b % handles_.size()] = Handle{arrays[1], {memory, offset, offset + 8}};
}

// ---- work --------------------------------------------------------------------------------------

void World::work(const Op& op) {
  if (slot(op.a) == nullptr) return;
  switch (op.code) {
    case Code::write: write(op); break;
    case Code::fill: fill(op); break;
    case Code::copy: copy(op); break;
    case Code::launch: launch(op); break;
    default: host_call(op); break;
  }
}

void World::write(const Op& op) {
  const Handle to = part(*slot(op.a), op.at, op.n);
  std::vector<Byte> data(to.span.size());
  for (std::size_t i = 0; i < data.size(); ++i) data[i] = static_cast<Byte>(op.value + 3 * i);
  const Command command{
      .verb = Command::Verb::write, .arguments = {{to.span, Access::must_write}}, .data = data};
  const auto owned = [&] {
    HostBytes bytes(data.size());
    std::copy(data.begin(), data.end(), reinterpret_cast<Byte*>(bytes.data()));
    return bytes;
  };
  post(
      op, command,
      [&](const Client& client) {
        if ((op.who & 8) != 0) {
          client.write(to.real, owned());
        } else {
          client.write(to.real, data);
        }
      },
      [&](const Client& client) { return client.try_write(to.real, owned()); },
      [&](const Client& client) {
        borrowed_.push_back(data);
        return client.async_write(to.real, borrowed_.back());
      });
}

void World::fill(const Op& op) {
  const Handle to = part(*slot(op.a), op.at, op.n);
  const Command command{
      .verb = Command::Verb::fill, .arguments = {{to.span, Access::must_write}}, .value = op.value};
  post(
      op, command, [&](const Client& client) { client.fill(to.real, op.value); },
      [&](const Client& client) { return client.try_fill(to.real, op.value); },
      [&](const Client& client) { return client.async_fill(to.real, op.value); });
}

void World::copy(const Op& op) {
  if (slot(op.b) == nullptr) return;
  Handle to = part(*slot(op.a), op.at, op.n);
  Handle from = *slot(op.b);
  const std::size_t count = std::min(to.span.size(), from.span.size());
  to = {to.real.slice(0, count), {to.span.memory, to.span.begin, to.span.begin + count}};
  from = {from.real.slice(0, count), {from.span.memory, from.span.begin, from.span.begin + count}};
  const bool overlap = to.span.memory == from.span.memory && to.span.begin < from.span.end &&
                       from.span.begin < to.span.end;
  if (overlap) {
    attempt({code(Errc::invalid_argument), false},
            [&] { stream_of(op).real.copy(to.real, from.real); });
    return;
  }
  const Command command{.verb = Command::Verb::copy,
                        .arguments = {{to.span, Access::must_write}, {from.span, Access::reads}}};
  post(
      op, command, [&](const Client& client) { client.copy(to.real, from.real); },
      [&](const Client& client) { return client.try_copy(to.real, from.real); },
      [&](const Client& client) { return client.async_copy(to.real, from.real); });
}

template <class... X>
void World::launch_as(const Op& op, const Command& command, const Kernel<void(X...)>& kernel,
                      const Grid& grid, const auto&... arguments) {
  post(
      op, command, [&](const Client& client) { client.launch(kernel, grid, arguments...); },
      [&](const Client& client) { return client.try_launch(kernel, grid, arguments...); },
      [&](const Client& client) { return client.async_launch(kernel, grid, arguments...); });
}

void World::launch(const Op& op) {
  Command command{.verb = Command::Verb::launch,
                  .body = static_cast<Body>(op.value % body_count),
                  .at = op.at,
                  .value = op.b};
  const auto modes = modes_of(command.body);
  std::vector<Handle> used{*slot(op.a)};
  if (modes.size() > 1) used.push_back(slot(op.b) != nullptr ? *slot(op.b) : used[0]);
  if (modes.size() > 2) used.push_back(slot(op.c) != nullptr ? *slot(op.c) : used[0]);
  std::set<const Allocation*> different;
  for (std::size_t i = 0; i < used.size(); ++i) {
    if (i == 0) used[i] = part(used[i], op.at, op.n);
    command.arguments.push_back({used[i].span, modes[i]});
    different.insert(used[i].span.memory.get());
  }
  // Blocks that run at once must not meet.
  const bool independent = command.body != Body::shake && command.body != Body::poke &&
                           command.body != Body::stab && different.size() == used.size();
  const auto blocks = independent ? 1 + (op.who >> 6) : 1;
  Grid grid = blocks == 1 ? Grid{1} : Grid{Dim3{static_cast<std::uint32_t>(blocks)}, Dim3{24}};
  const auto kind = op.c / handles_.size();
  if (kind == 1) {
    command.no_grid = true;
    grid = Grid{0};
  } else if (kind == 2) {
    command.bad_grid = true;
    grid = Grid{Dim3{1}, Dim3{0}};
  }
  const Bytes x = used[0].real;
  const Bytes y = used.size() > 1 ? used[1].real : x;
  const Bytes z = used.size() > 2 ? used[2].real : x;
  switch (command.body) {
    case Body::add_one: return launch_as(op, command, add_one_kernel, grid, x, y);
    case Body::fail: return launch_as(op, command, fail_kernel, grid, x, y);
    case Body::mix: return launch_as(op, command, mix_kernel, grid, x, y, z);
    case Body::fail_if: return launch_as(op, command, fail_if_kernel, grid, x, y, z);
    case Body::bump: return launch_as(op, command, bump_kernel, grid, x, op.at, op.b);
    case Body::shake: return launch_as(op, command, shake_kernel, grid, x, op.at, op.b);
    case Body::poke: return launch_as(op, command, poke_kernel, grid, x, op.at, op.b);
    case Body::stab: return launch_as(op, command, stab_kernel, grid, x, op.at, op.b);
    default: return launch_as(op, command, seed_kernel, grid, x, op.at, op.b);
  }
}

void World::host_call(const Op& op) {
  Command command{.verb = Command::Verb::host_call, .value = op.value % 4 == 0 ? Byte{1} : Byte{0}};
  ByteSets sets;
  const auto add = [&](const Handle& handle, Access access, std::vector<Buffer>& to) {
    to.push_back(handle.real);
    command.arguments.push_back({handle.span, access});
  };
  if ((op.c & 1) != 0) add(*slot(op.a), Access::reads, sets.reads);
  if ((op.c & 2) != 0 && slot(op.b) != nullptr) {
    add(part(*slot(op.b), op.at, op.n), Access::may_write, sets.may_write);
  }
  const auto function = [this, throws = command.value != 0] {
    host_calls_.fetch_add(1);
    if (throws) throw std::runtime_error("asked to fail");
  };
  post(
      op, command, [&](const Client& client) { client.host_call(sets, function); },
      [&](const Client& client) { return client.try_host_call(sets, function); },
      [&](const Client& client) { return client.async_host_call(sets, function); });
}

}  // namespace reprise::test::model
