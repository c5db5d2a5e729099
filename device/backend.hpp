// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <reprise/memory/page.hpp>
#include <reprise/device/command.hpp>
#include <reprise/device/graph_program.hpp>
#include <reprise/device/host.hpp>
#include <reprise/device/work.hpp>

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>

namespace reprise {

/// What kind of device it is and what it can do.
struct DeviceProperties {
  std::string name;         ///< "cpu:0"
  std::string description;  ///< For people.
  std::uint64_t memory_bytes = 0;
  std::uint32_t streams = 1;      ///< Backend streams, numbered from 0.
  std::uint32_t workers = 0;      ///< Threads that run kernels; 0: the device thread does.
  std::uint32_t alignment = 256;  ///< Of every allocation.
  Limits limits;
  bool asynchronous = true;      ///< Commands run behind the device thread's back.
  bool judges_execution = true;  ///< It tells which command failed; others lose the device.
  bool host_visible = true;      ///< Addresses may be dereferenced by the host.
};

/// How a backend reaches its actor. All calls may come from any thread and never block.
class Notice {
public:
  /// A command failed while running. Its stream is held just after it until resume().
  virtual void failed(Work& work) noexcept = 0;
  /// Something the actor asked to be told about has finished; see Backend::arm().
  virtual void progressed() noexcept = 0;

protected:
  ~Notice() = default;
};

/// What decides when a helping thread goes back to its own business.
class HelpUntil {
public:
  virtual bool done() noexcept = 0;

protected:
  ~HelpUntil() = default;
};

/// What a device can do: memory, streams, commands, graphs. Non-throwing; every verb that can fail
/// answers a Result. Implementations: cpu, cuda, and decorators of tests.
///
/// Threads  The device thread calls everything, except lower(), which runs on the helper thread,
///          help(), which runs on a blocked caller, and properties() and end_loops(), which any
///          thread may call.
class Backend {
public:
  virtual ~Backend() = default;

  virtual const DeviceProperties& properties() const noexcept = 0;
  /// The pages of its memory.
  virtual PageSource& pages() noexcept = 0;
  /// Starts its threads; `notice` outlives stop(). Errc::out_of_memory, Errc::refused.
  virtual Result<void> start(Notice& notice) = 0;
  /// No command is queued any more, or the queued ones are given up: ends its threads. False if one
  /// did not end by the deadline; it and everything it uses must then be leaked. `stuck` gets the
  /// name of what it runs.
  virtual bool stop(std::uint64_t deadline_ns, std::string& stuck) noexcept = 0;
  /// The device is aborted: a loop of a graph on the device fails before its next run, with
  /// Errc::operation_aborted. Any thread.
  virtual void end_loops() noexcept {}
  /// After stop() answered false: whether the device thread is inside a command that does not
  /// return. Once this has answered true, that thread touches nothing of the device's any more.
  virtual bool holds_device_thread() noexcept { return false; }

  /// Takes a command: it will run after the commands before it on `stream` and after its waits.
  /// Sets work.stream and work.position. On an error nothing happened.
  virtual Result<void> enqueue(StreamIndex stream, Work& work) noexcept = 0;
  /// The position up to which everything on `stream` has finished. One atomic read.
  virtual StreamPosition finished(StreamIndex stream) const noexcept = 0;
  /// Lets what was enqueued since the last kick start. Enqueued commands may start earlier, but
  /// need not: the actor kicks once it has nothing more to enqueue, so that a blocked caller that
  /// helps can go first. Also starts what a helper has left over, which progressed() told of.
  /// `except` is a stream that a helper is about to run, or no_stream.
  virtual void kick(StreamIndex except) noexcept = 0;
  /// Asks for one Notice::progressed() once `stream` has finished `position`. False: it has.
  virtual bool arm(StreamIndex stream, StreamPosition position) noexcept = 0;
  /// Lets a stream that is held by a failure go on behind the failed command; or, if its
  /// Work::failure was cleared, with that command, which is run again.
  virtual void resume(StreamIndex stream) noexcept = 0;
  /// The calling thread runs commands of `stream` until `until.done()`, the stream has nothing to
  /// run, or another thread has it. Backends without worker threads of their own may do nothing.
  virtual void help(StreamIndex stream, HelpUntil& until) noexcept = 0;

  /// Turns a recording into its executable form. May take long.
  virtual Result<std::unique_ptr<GraphProgram>> lower(const GraphPlan& plan) = 0;

  static constexpr StreamIndex no_stream = ~StreamIndex{0};
};

}  // namespace reprise
