// SPDX-License-Identifier: Apache-2.0
#include <reprise/runtime/verbs.hpp>

#include <reprise/capture/recorder.hpp>
#include <reprise/runtime/actor.hpp>
#include <reprise/runtime/client.hpp>
#include <reprise/runtime/core.hpp>
#include <reprise/runtime/cross_copy.hpp>
#include <reprise/runtime/make_call.hpp>
#include <reprise/runtime/reply_cell.hpp>
#include <reprise/runtime/transfer.hpp>

#include <algorithm>
#include <limits>

namespace reprise::detail {

namespace {

// Writes up to here travel inside the operation; larger ones are staged.
constexpr std::uint64_t inline_bytes = 512;

const std::shared_ptr<LogicalStream>& stream_of(const Client& client, const char* verb) {
  const auto& stream = ClientAccess::stream(client);
  if (!stream) throw Failure(Errc::empty_handle, verb, "the client is empty");
  return stream;
}

Touch touch_of(const LogicalStream& stream, const Buffer& buffer, Access access, const char* verb) {
  const HoldRef& hold = BufferAccess::hold(buffer);
  if (!hold) throw Failure(Errc::empty_handle, verb, "a buffer is empty");
  if (hold->owner() != stream.core.get()) {
    throw Failure(Errc::wrong_device, verb,
                  "a buffer of another device than '" + stream.core->name() + "'");
  }
  return {hold, BufferAccess::range(buffer), access};
}

std::uint64_t address_of(const Touch& touch) noexcept {
  return touch.hold->device.address + touch.range.begin;
}

/// Operations with byte sets keep them behind themselves in their block.
template <class Op, class... A>
Op* make_with_touches(const std::shared_ptr<LogicalStream>& stream, std::size_t count,
                      std::size_t more, A&&... arguments) {
  Op* const operation =
      stream->core->make<Op>(count * sizeof(Touch) + more, std::forward<A>(arguments)...);
  operation->logical = stream;
  auto* const touches = reinterpret_cast<Touch*>(DeviceCore::extra(*operation));
  std::uninitialized_value_construct_n(touches, count);
  operation->own_touches = {touches, count};
  operation->touches = operation->own_touches;
  return operation;
}

/// A request for memory that was not served: every byte carries the reason.
void fail_memory(Hold& hold, const FailurePtr& failure) noexcept {
  hold.device.state = Hold::Device::State::failed;
  hold.device.failure = failure;
  hold.device.taint.claim_all(failure);
}

/// Finds memory for a new hold.
class AllocateOperation final : public Operation {
public:
  explicit AllocateOperation(HoldRef hold) noexcept : Operation("empty"), hold_(std::move(hold)) {}
  void accept(Actor& actor) override {
    if (actor.find_memory(*this, {&hold_, 1})) actor.done(*this);
  }
  void failed_with(const FailurePtr& failure) noexcept override { fail_memory(*hold_, failure); }

private:
  HoldRef hold_;
};

class CommandOperation : public Operation {
public:
  using Operation::Operation;
  ~CommandOperation() override { std::destroy(own_touches.begin(), own_touches.end()); }

  void failed_with(const FailurePtr& failure) noexcept override {
    if (!allocates) return;
    Hold& hold = *own_touches[0].hold;
    if (hold.device.state == Hold::Device::State::unbound) fail_memory(hold, failure);
  }

  bool allocates = false;  ///< Its buffer is new: the memory is found before it runs.

  std::byte* behind_touches() noexcept {
    return reinterpret_cast<std::byte*>(own_touches.data() + own_touches.size());
  }

protected:
  /// False: there is none, and the operation has been answered.
  bool has_memory(Actor& actor) {
    return !allocates || actor.find_memory(*this, {&own_touches[0].hold, 1});
  }
};

class LaunchOperation final : public CommandOperation {
public:
  /// With a count, the last of its touches is the count's.
  LaunchOperation(const KernelRef& kernel, const Grid& grid, bool has_count) noexcept
      : CommandOperation("launch"), kernel_(kernel), grid_(grid), has_count_(has_count) {
    where = grid.where;
  }

  std::string_view name() const noexcept override { return kernel_->name; }

  void accept(Actor& actor) override {
    if (grid_.blocks.count() == 0) return actor.done(*this);
    if (kernel_->cpu == nullptr) {
      return actor.refuse(*this, Errc::no_such_kernel, "the kernel has no body for this device");
    }
    const std::size_t buffers = own_touches.size() - (has_count_ ? 1 : 0);
    for (std::size_t i = 0; i < buffers; ++i) {
      void* const address = reinterpret_cast<void*>(address_of(own_touches[i]));
      std::memcpy(arguments + offsets[i] + offsetof(BufferSlot, data), &address, sizeof address);
    }
    command = command::Launch{kernel_.get(), grid_, arguments,
                              has_count_ ? address_of(own_touches[buffers]) : 0};
    actor.run(*this);
  }

  void describe(RecordedNode& node, Recorder& recorder) const override {
    std::byte* const copy = recorder.copy_arguments({arguments, argument_bytes});
    if (copy == nullptr) throw std::bad_alloc();
    std::get<command::Launch>(node.command).arguments = copy;
    node.kernel = kernel_;
  }
  void retired(Actor& actor) noexcept override {
    if (!kernel_.release_unless_last()) actor.core().shared().dispose(std::move(kernel_));
  }

  std::uint32_t* offsets = nullptr;
  std::byte* arguments = nullptr;
  std::uint32_t argument_bytes = 0;

private:
  KernelRef kernel_;
  GridSize grid_;
  bool has_count_;
};

/// The touch of a launch's count.
Touch count_touch(const LogicalStream& stream, const Buffer& count) {
  const Touch touch = touch_of(stream, count, Access::reads, "launch");
  if (touch.range.size() != 4) {
    throw Failure(Errc::size_mismatch, "launch",
                  "a count of " + std::to_string(touch.range.size()) + " bytes instead of 4");
  }
  return touch;
}

class CopyOperation final : public CommandOperation {
public:
  CopyOperation() noexcept : CommandOperation("copy") {}
  void accept(Actor& actor) override {
    if (own_touches[0].range.empty()) return actor.done(*this);
    command = command::Copy{address_of(own_touches[0]), address_of(own_touches[1]),
                            own_touches[0].range.size()};
    actor.run(*this);
  }
};

class FillOperation final : public CommandOperation {
public:
  FillOperation(const char* verb_, std::uint64_t pattern, std::uint32_t pattern_bytes) noexcept
      : CommandOperation(verb_), pattern_(pattern), pattern_bytes_(pattern_bytes) {}
  void accept(Actor& actor) override {
    if (!has_memory(actor)) return;
    if (own_touches[0].range.empty()) return actor.done(*this);
    command = command::Fill{address_of(own_touches[0]), own_touches[0].range.size(), pattern_,
                            pattern_bytes_};
    actor.run(*this);
  }

private:
  std::uint64_t pattern_;
  std::uint32_t pattern_bytes_;
};

class WriteOperation final : public CommandOperation {
public:
  explicit WriteOperation(const char* verb_) noexcept : CommandOperation(verb_) {}
  void accept(Actor& actor) override {
    if (!has_memory(actor)) return;
    if (own_touches[0].range.empty()) return actor.done(*this);
    command = command::Write{address_of(own_touches[0]), from, own_touches[0].range.size()};
    actor.run(*this);
  }
  void describe(RecordedNode& node, Recorder& /*recorder*/) const override {
    // Host memory that a graph reads on every replay is the graph's own.
    const std::uint64_t bytes = own_touches[0].range.size();
    node.retained_bytes = bytes;
    if (owned.size() != 0) {
      // Released by a function of the user's, perhaps, and so where user code runs.
      node.retained = std::shared_ptr<const HostBytes>(
          new HostBytes(std::move(owned)), [core = logical->core](HostBytes* last) {
            core->shared().dispose(std::unique_ptr<HostBytes>(last));
          });
      return;
    }
    std::shared_ptr<std::byte[]> kept(new std::byte[bytes]);
    std::memcpy(kept.get(), from, bytes);
    std::get<command::Write>(node.command).from = kept.get();
    node.retained = std::move(kept);
  }
  void retired(Actor& actor) noexcept override {
    if (owned.is_foreign()) actor.core().shared().dispose(std::move(owned));
  }

  const std::byte* from = nullptr;
  mutable HostBytes owned;  // Until a recording has it.
  std::shared_ptr<const std::byte[]> kept;
  StagingBlock staged;
};

class ReadOperation final : public CommandOperation {
public:
  explicit ReadOperation(std::byte* to) noexcept : CommandOperation("read"), to_(to) {}
  void accept(Actor& actor) override {
    if (own_touches[0].range.empty()) return actor.done(*this);
    if (actor.is_recording(*this)) {
      return actor.answer(*this, make_failure(Errc::capture_refused, "read", {},
                                              "a recording stream cannot be read"));
    }
    command = command::Read{to_, address_of(own_touches[0]), own_touches[0].range.size()};
    actor.run(*this);
  }
  FailurePtr skip_failure(const Claim& claim) const noexcept override {
    return report(claim, verb, where);
  }

private:
  std::byte* to_;
};

/// A function of the user's with its captures; both die on the courier thread.
class HostCallOperation final : public CommandOperation {
public:
  explicit HostCallOperation(std::shared_ptr<std::function<void()>> function) noexcept
      : CommandOperation("host_call"), function_(std::move(function)) {}
  void accept(Actor& actor) override {
    command = command::HostCall{
        [](void* context) { (*static_cast<std::function<void()>*>(context))(); }, function_.get()};
    actor.run(*this);
  }
  void describe(RecordedNode& node, Recorder& /*recorder*/) const override {
    node.retained = function_;
  }
  void retired(Actor& actor) noexcept override {
    actor.core().shared().dispose(std::move(function_));
  }

private:
  std::shared_ptr<std::function<void()>> function_;
};

}  // namespace

// ---- builders ----------------------------------------------------------------------------------

KeptBytes keep_bytes(std::span<const std::byte> bytes) {
  std::shared_ptr<std::byte[]> copy(new std::byte[bytes.size()]);
  if (!bytes.empty()) std::memcpy(copy.get(), bytes.data(), bytes.size());
  return {std::move(copy), bytes.size()};
}

Operation* make_empty(const Client& client, std::uint64_t bytes, Buffer& made) {
  const auto& stream = stream_of(client, "empty");
  HoldRef hold = stream->core->make_hold(bytes);
  Operation* const operation = stream->core->make<AllocateOperation>(0, hold);
  operation->logical = stream;
  made = BufferAccess::make(std::move(hold), 0, bytes);
  return operation;
}

namespace {

/// Lets `operation`, which writes all of one buffer, make that buffer.
Operation* allocating(CommandOperation* operation, std::uint64_t bytes, Buffer& made) {
  HoldRef hold = operation->logical->core->make_hold(bytes);
  operation->own_touches[0] = {hold, {0, bytes}, Access::must_write};
  operation->allocates = true;
  made = BufferAccess::make(std::move(hold), 0, bytes);
  return operation;
}

}  // namespace

Operation* make_zeros(const Client& client, std::uint64_t bytes, Buffer& made) {
  const auto& stream = stream_of(client, "zeros");
  return allocating(make_with_touches<FillOperation>(stream, 1, 0, "zeros", 0, 1), bytes, made);
}

Operation* make_create(const Client& client, KeptBytes bytes, Buffer& made) {
  const auto& stream = stream_of(client, "create");
  auto* const operation = make_with_touches<WriteOperation>(stream, 1, 0, "create");
  operation->from = bytes.data.get();
  operation->kept = std::move(bytes.data);
  return allocating(operation, bytes.size, made);
}

Operation* make_carved(const Client& client, std::span<const std::uint64_t> bytes,
                       std::vector<Buffer>& parts) {
  const auto& stream = stream_of(client, "create_many");
  const std::uint64_t alignment = stream->core->backend().properties().alignment;
  std::uint64_t total = 0;
  for (const std::uint64_t each : bytes) {
    const std::uint64_t at = align_up(total, alignment);
    if (at < total || each > std::numeric_limits<std::uint64_t>::max() - at) {
      throw Failure(Errc::never_fits, "create_many",
                    std::to_string(bytes.size()) + " arrays are more than 2^64 bytes");
    }
    total = at + each;
  }
  Buffer whole;
  Operation* const operation = make_empty(client, total, whole);
  std::uint64_t at = 0;
  for (const std::uint64_t each : bytes) {
    at = align_up(at, alignment);
    parts.push_back(whole.slice_bytes(std::min(at, total), each));
    at += each;
  }
  return operation;
}

Operation* make_launch(const Client& client, const KernelRef& kernel, const LaunchGrid& grid,
                       const ArgumentView& arguments) {
  const auto& stream = stream_of(client, "launch");
  const bool has_count = grid.count != nullptr;
  Touch counted = has_count ? count_touch(*stream, *grid.count) : Touch{};
  const std::size_t count = arguments.buffers.size();
  const std::size_t offsets = (count * sizeof(std::uint32_t) + 15) / 16 * 16;
  for (const BoundBuffer& bound : arguments.buffers) {
    (void)touch_of(*stream, *bound.buffer, bound.access, "launch");
  }
  auto* const operation = make_with_touches<LaunchOperation>(stream, count + (has_count ? 1 : 0),
                                                             offsets + arguments.block.size(),
                                                             kernel, grid.grid, has_count);
  operation->offsets = reinterpret_cast<std::uint32_t*>(operation->behind_touches());
  operation->arguments = operation->behind_touches() + offsets;
  operation->argument_bytes = static_cast<std::uint32_t>(arguments.block.size());
  for (std::size_t i = 0; i < count; ++i) {
    const BoundBuffer& bound = arguments.buffers[i];
    // How much of it runs is not known, so nothing is certainly written.
    operation->own_touches[i] = {BufferAccess::hold(*bound.buffer),
                                 BufferAccess::range(*bound.buffer),
                                 has_count ? at_most(bound.access) : bound.access};
    operation->offsets[i] = bound.offset;
  }
  if (has_count) operation->own_touches[count] = std::move(counted);
  std::memcpy(operation->arguments, arguments.block.data(), arguments.block.size());
  return operation;
}

Operation* make_copy(const Client& client, const Buffer& to, const Buffer& from) {
  const auto& stream = stream_of(client, "copy");
  const Touch target = touch_of(*stream, to, Access::must_write, "copy");
  const HoldRef& hold = BufferAccess::hold(from);
  if (!hold) throw Failure(Errc::empty_handle, "copy", "a buffer is empty");
  const Touch source{hold, BufferAccess::range(from), Access::reads};
  if (target.range.size() != source.range.size()) {
    throw Failure(Errc::size_mismatch, "copy",
                  std::to_string(source.range.size()) + " bytes into " +
                      std::to_string(target.range.size()));
  }
  if (hold->owner() != stream->core.get()) return make_cross_copy(stream, target, source);
  if (target.hold == source.hold && target.range.overlaps(source.range)) {
    throw Failure(Errc::invalid_argument, "copy", "source and destination overlap");
  }
  auto* const operation = make_with_touches<CopyOperation>(stream, 2, 0);
  operation->own_touches[0] = target;
  operation->own_touches[1] = source;
  return operation;
}

Operation* make_fill(const Client& client, const Buffer& buffer, std::uint64_t pattern,
                     std::uint32_t pattern_bytes, const char* verb) {
  const auto& stream = stream_of(client, verb);
  Touch target = touch_of(*stream, buffer, Access::must_write, verb);
  auto* const operation =
      make_with_touches<FillOperation>(stream, 1, 0, verb, pattern, pattern_bytes);
  operation->own_touches[0] = std::move(target);
  return operation;
}

namespace {

void check_size(const char* verb, std::uint64_t bytes, const Touch& touch) {
  if (touch.range.size() == bytes) return;
  throw Failure(Errc::size_mismatch, verb,
                std::to_string(bytes) + " bytes into " + std::to_string(touch.range.size()));
}

WriteOperation* make_bare_write(const Client& client, const Buffer& buffer, std::uint64_t bytes,
                                std::size_t more) {
  const auto& stream = stream_of(client, "write");
  Touch target = touch_of(*stream, buffer, Access::must_write, "write");
  check_size("write", bytes, target);
  auto* const operation = make_with_touches<WriteOperation>(stream, 1, more, "write");
  operation->own_touches[0] = std::move(target);
  return operation;
}

}  // namespace

Operation* make_write(const Client& client, const Buffer& buffer, HostBytes bytes) {
  auto* const operation = make_bare_write(client, buffer, bytes.size(), 0);
  operation->owned = std::move(bytes);
  operation->from = operation->owned.data();
  return operation;
}

Operation* make_write(const Client& client, const Buffer& buffer, KeptBytes bytes) {
  auto* const operation = make_bare_write(client, buffer, bytes.size, 0);
  operation->kept = std::move(bytes.data);
  operation->from = operation->kept.get();
  return operation;
}

Operation* make_host_call(const Client& client, const ByteSets& sets,
                          std::function<void()> function) {
  const auto& stream = stream_of(client, "host_call");
  if (!function) throw Failure(Errc::invalid_argument, "host_call", "the function is empty");
  std::vector<Touch> touches;
  for (const Buffer& b : sets.reads)
    touches.push_back(touch_of(*stream, b, Access::reads, "host_call"));
  for (const Buffer& b : sets.may_write) {
    touches.push_back(touch_of(*stream, b, Access::may_write, "host_call"));
  }
  for (const Buffer& b : sets.must_write) {
    touches.push_back(touch_of(*stream, b, Access::must_write, "host_call"));
  }
  auto* const operation = make_with_touches<HostCallOperation>(
      stream, touches.size(), 0, std::make_shared<std::function<void()>>(std::move(function)));
  std::move(touches.begin(), touches.end(), operation->own_touches.begin());
  return operation;
}

// ---- forms -------------------------------------------------------------------------------------

void post(Operation* operation) {
  operation->logical->core->post(operation);
}

bool try_post(Operation* operation) {
  auto posted = operation->logical->core->try_post(operation);
  if (posted) return true;
  if (posted.error().code == Errc::would_block) return false;
  throw Failure(DeviceCore::closed_failure("try"));
}

void post_accepted(Reply* reply, Operation* operation) noexcept {
  operation->accepted = Completion(reply);
  operation->logical->core->post_async(operation);
}

void answer_exception(Reply* reply, const char* verb) noexcept {
  FailurePtr failure;
  try {
    throw;
  } catch (const Failure& thrown) {
    failure = thrown.shared_record();
  } catch (const std::bad_alloc&) {
    failure = make_failure(Errc::out_of_memory, verb, {}, "no host memory");
  } catch (const std::exception& thrown) {
    failure = make_failure(Errc::invalid_argument, verb, {}, thrown.what());
  }
  reply->complete(failure);
}

namespace {

/// Whether a command on nothing can be left out; throws closed as if it had been posted.
bool is_nothing(const LogicalStream& stream, std::uint64_t bytes, const char* verb) {
  if (bytes != 0) return false;
  if (stream.core->is_closed()) throw Failure(DeviceCore::closed_failure(verb));
  return true;
}

}  // namespace

void post_write(const Client& client, const Buffer& buffer, std::span<const std::byte> bytes) {
  const auto& stream = stream_of(client, "write");
  Touch target = touch_of(*stream, buffer, Access::must_write, "write");
  check_size("write", bytes.size(), target);
  if (is_nothing(*stream, bytes.size(), "write")) return;
  if (bytes.size() <= inline_bytes) {
    auto* const operation = make_bare_write(client, buffer, bytes.size(), bytes.size());
    std::byte* const copy = operation->behind_touches();
    std::memcpy(copy, bytes.data(), bytes.size());
    operation->from = copy;
    return post(operation);
  }
  DeviceCore& core = *stream->core;
  const bool in_chunks = bytes.size() > core.staging().max_block();
  // What a graph keeps needs no staging, and a thread that others wait for waits for none.
  if (core.captures().status().is_capturing(stream->id) ||
      (in_chunks && this_thread_role() != ThreadRole::user)) {
    HostBytes copy(bytes.size());
    std::memcpy(copy.data(), bytes.data(), bytes.size());
    return post(make_write(client, buffer, std::move(copy)));
  }
  if (in_chunks) return write_in_chunks(stream, std::move(target), bytes);
  StagingBlock staged = core.take_staging(bytes.size());
  std::memcpy(staged.data(), bytes.data(), bytes.size());
  auto* const operation = make_bare_write(client, buffer, bytes.size(), 0);
  operation->staged = std::move(staged);
  operation->from = operation->staged.data();
  post(operation);
}

void start_write(const Client& client, const Buffer& buffer, std::span<const std::byte> bytes,
                 Reply* reply) noexcept {
  WriteOperation* operation = nullptr;
  try {
    operation = make_bare_write(client, buffer, bytes.size(), 0);
  } catch (...) {
    return answer_exception(reply, "write");
  }
  operation->from = bytes.data();
  operation->finished = Completion(reply);
  operation->logical->core->post_async(operation);
}

namespace {

ReadOperation* make_read(const Client& client, const Buffer& buffer, std::span<std::byte> into) {
  const auto& stream = stream_of(client, "read");
  Touch source = touch_of(*stream, buffer, Access::reads, "read");
  if (source.range.size() != into.size()) {
    throw Failure(Errc::size_mismatch, "read",
                  std::to_string(source.range.size()) + " bytes into " +
                      std::to_string(into.size()));
  }
  auto* const operation = make_with_touches<ReadOperation>(stream, 1, 0, into.data());
  operation->own_touches[0] = std::move(source);
  return operation;
}

}  // namespace

void read(const Client& client, const Buffer& buffer, std::span<std::byte> into) {
  refuse_library_threads("read");
  const auto& stream = stream_of(client, "read");
  if (into.empty() && buffer.size_bytes() == 0) {
    (void)touch_of(*stream, buffer, Access::reads, "read");
    if (is_nothing(*stream, 0, "read")) return;
  }
  ReadOperation* const operation = make_read(client, buffer, into);
  BlockingReply reply;
  operation->finished = Completion(&reply);
  operation->logical->core->call(operation, reply);
}

void start_read(const Client& client, const Buffer& buffer, std::span<std::byte> into,
                Reply* reply) noexcept {
  ReadOperation* operation = nullptr;
  try {
    operation = make_read(client, buffer, into);
  } catch (...) {
    return answer_exception(reply, "read");
  }
  operation->finished = Completion(reply);
  operation->logical->core->post_async(operation);
}

void start_flush(const Client& client, Reply* reply) noexcept {
  Operation* operation = nullptr;
  try {
    operation = make_call(stream_of(client, "flush"), "flush",
                          [](Actor& actor, Operation& self) { actor.done(self); });
  } catch (...) {
    return answer_exception(reply, "flush");
  }
  post_accepted(reply, operation);
}

void start_synchronize(const Client& client, Reply* reply) noexcept {
  Operation* operation = nullptr;
  try {
    operation = make_call(stream_of(client, "synchronize"), "synchronize",
                          [](Actor& actor, Operation& self) { actor.synchronize(self); });
  } catch (...) {
    return answer_exception(reply, "synchronize");
  }
  operation->finished = Completion(reply);
  operation->logical->core->post_async(operation);
}

}  // namespace reprise::detail
