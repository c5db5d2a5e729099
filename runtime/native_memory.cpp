// SPDX-License-Identifier: Apache-2.0
#include <reprise/runtime/actor.hpp>
#include <reprise/runtime/buffer.hpp>
#include <reprise/runtime/client.hpp>
#include <reprise/runtime/core.hpp>
#include <reprise/runtime/make_call.hpp>
#include <reprise/runtime/reply_cell.hpp>

#include <functional>
#include <memory>
#include <utility>

namespace reprise {

namespace {

using detail::Actor;
using detail::DeviceCore;
using detail::Operation;

/// Calls the user's release function: on the courier or, if that has ended, on a thread of the
/// user's.
struct Release : detail::Job {
  Release(std::function<void(void*)> function_, void* data_) noexcept
      : function(std::move(function_)), data(data_) {
    run = [](Job& job) {
      const std::unique_ptr<Release> self(static_cast<Release*>(&job));
      self->function(self->data);
    };
    destroy = [](Job& job) noexcept {
      try {
        job.run(job);
      } catch (...) {
        // Nobody is left to be told.
      }
    };
  }

  std::function<void(void*)> function;
  void* data;
};

void require_host_memory(DeviceCore& core, const char* verb) {
  if (core.backend().properties().host_visible) return;
  throw Failure(Errc::unsupported, verb,
                "'" + core.name() + "' does not work on memory of the host");
}

}  // namespace

Buffer Client::import_memory(void* data, std::uint64_t bytes,
                             std::function<void(void*)> release) const {
  const auto& stream = detail::ClientAccess::stream(*this);
  if (!stream) throw Failure(Errc::empty_handle, "import_memory", "the client is empty");
  DeviceCore& core = *stream->core;
  require_host_memory(core, "import_memory");
  if (data == nullptr && bytes != 0) {
    throw Failure(Errc::invalid_argument, "import_memory",
                  std::to_string(bytes) + " bytes at no address");
  }
  if (core.is_closed()) throw Failure(DeviceCore::closed_failure("import_memory"));
  std::unique_ptr<Release> on_release;
  if (release) on_release = std::make_unique<Release>(std::move(release), data);
  HoldRef hold = core.make_hold(bytes, on_release.get());
  (void)on_release.release();
  // Nobody else has the hold yet, so even its device's part is this thread's.
  hold->device.state = Hold::Device::State::bound;
  hold->device.address = reinterpret_cast<std::uintptr_t>(data);
  hold->device.taint.clear({0, bytes});
  hold->device.uses.ready({0, bytes});
  return detail::BufferAccess::make(std::move(hold), 0, bytes);
}

void* Buffer::export_native() const {
  if (!hold_) throw Failure(Errc::empty_handle, "export_native", "the buffer is empty");
  detail::refuse_library_threads("export_native");
  DeviceCore& core = *static_cast<DeviceCore*>(hold_->owner());
  require_host_memory(core, "export_native");
  std::uint64_t address = 0;
  detail::BlockingReply reply;
  Operation* const operation =
      detail::make_call(core, "export_native", [&](Actor& actor, Operation& self) {
        const Hold::Device& device = hold_->device;
        if (device.state != Hold::Device::State::bound) {
          return actor.answer(self, make_failure(device.failure->code, "export_native", {},
                                                 "its memory was never there", device.failure));
        }
        address = device.address + offset_;
        actor.done(self);
      });
  operation->accepted = Completion(&reply);
  core.call(operation, reply);
  return reinterpret_cast<void*>(address);
}

}  // namespace reprise
