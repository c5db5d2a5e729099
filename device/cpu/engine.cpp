// SPDX-License-Identifier: Apache-2.0
#include <reprise/device/cpu/engine.hpp>

#include <reprise/memory/check.hpp>
#include <reprise/device/cpu/execute.hpp>
#include <reprise/device/cpu/program.hpp>

#include <exception>
#include <thread>
#include <utility>

namespace reprise::detail {

Engine::Engine(Host& host, std::uint32_t streams, std::uint32_t workers,
               std::uint64_t split_threshold_ns)
    : crew_(workers),
      // On a cooperative host a thread cannot wait for another to finish its blocks.
      splitter_(host, crew_, split_threshold_ns, workers != 0 && !host.is_cooperative()),
      count_(streams), streams_(std::make_unique<CpuStream[]>(streams)) {
  std::vector<SplitSlot*> slots;
  for (std::uint32_t i = 0; i < count_; ++i) {
    streams_[i].index = i;
    streams_[i].waiter.stream = &streams_[i];
    slots.push_back(&streams_[i].split);
  }
  splitter_.set_slots(std::move(slots));
}

Engine::Left Engine::run(CpuStream& stream, std::uint32_t works, HelpUntil* until,
                         bool looks_after) noexcept {
  std::uint32_t released = 0;
  for (std::uint32_t done = 0;; ++done) {
    if (done == works || (done != 0 && until && until->done())) {
      crew_.publish(released, true);
      return Left::unfinished;
    }
    Work* const work = stream.inbox.first();
    if (!work || suspend(stream, *work)) {
      crew_.publish(released, !looks_after);
      return Left::gone;
    }
    // Somebody else should see to what was released, since this thread goes on here.
    crew_.publish(std::exchange(released, 0), true);
    if (!begin(stream, *work)) return Left::gone;
    if (!execute(stream, *work)) {
      stream.held = work;
      notice_->failed(*work);  // The stream is the device thread's from here on.
      return Left::gone;
    }
    released = pass(stream);
  }
}

void Engine::hand_over(CpuStream& stream, bool wake) noexcept {
  const std::uint32_t bit = stream.bit();
  if (stream.inbox.hand_over()) crew_.publish(bit, wake);
}

void Engine::resume(CpuStream& stream) noexcept {
  REPRISE_CHECK(stream.held != nullptr, "a stream is resumed that no failure holds");
  const Work& held = *std::exchange(stream.held, nullptr);
  std::uint32_t ready = held.failure ? pass(stream) : 0;
  const std::uint32_t bit = stream.bit();
  if (stream.inbox.hand_over()) ready |= bit;
  crew_.publish(ready, true);
}

// True: the stream waits for another one now and is this thread's no more.
bool Engine::suspend(CpuStream& stream, const Work& work) noexcept {
  while (stream.waits_done < work.waits.size()) {
    const StreamPoint point = work.waits[stream.waits_done++];
    stream.waiter.position = point.position;
    if (streams_[point.stream].progress.wait(stream.waiter)) {
      REPRISE_MARK("suspended_stream");
      return true;
    }
  }
  return false;
}

// The first command has run, failed and been judged, or been skipped. Answers the streams that
// this has made ready; the caller publishes them.
std::uint32_t Engine::pass(CpuStream& stream) noexcept {
  stream.waits_done = 0;
  stream.inbox.drop_first();
  const auto passed = stream.progress.advance();
  if (passed.notify) notice_->progressed();
  std::uint32_t ready = 0;
  for (PositionWaiter* waiter = passed.released; waiter;) {
    CpuStream& other = *static_cast<CpuStream::Waiter*>(waiter)->stream;
    waiter = waiter->next;
    const std::uint32_t bit = other.bit();
    if (other.inbox.hand_over()) ready |= bit;
  }
  return ready;
}

// One of the two sees the other: begin() notes the command and then looks at the flag, give_up()
// sets the flag and then looks at the commands. False: given up.
bool Engine::begin(CpuStream& stream, const Work& work) noexcept {
  if (work.skip) return true;
  stream.running.begin(work);
  if (!given_up_.load(std::memory_order_seq_cst)) [[likely]]
    return true;
  stream.running.end();
  return false;
}

void Engine::give_up() noexcept {
  end_loops();
  given_up_.store(true, std::memory_order_seq_cst);
  for (CpuStream& stream : streams()) {
    while (stream.running.is_brief()) std::this_thread::yield();
  }
}

bool Engine::execute(CpuStream& stream, Work& work) noexcept {
  if (work.skip) return true;
  try {
    dispatch(stream, work);
  } catch (...) {
    work.failure = describe(verb_of(work.command), name_of(work.command), std::current_exception());
  }
  stream.running.end();
  if (work.failure) return false;
  if (work.succeeded) work.succeeded(work);
  return true;
}

void Engine::dispatch(CpuStream& stream, Work& work) {
  if (const auto* launch = std::get_if<command::Launch>(&work.command)) {
    splitter_.run(*launch, stream.index);
  } else if (const auto* graph = std::get_if<command::RunGraph>(&work.command)) {
    auto& program = static_cast<CpuProgram&>(*graph->program);
    work.failure = program.run(stream.index, stream.running.at, work.nodes, graph->slots);
  } else if (const auto* copy = std::get_if<command::Copy>(&work.command)) {
    detail::execute(*copy);
  } else if (const auto* fill = std::get_if<command::Fill>(&work.command)) {
    detail::execute(*fill);
  } else if (const auto* write = std::get_if<command::Write>(&work.command)) {
    detail::execute(*write);
  } else if (const auto* read = std::get_if<command::Read>(&work.command)) {
    detail::execute(*read);
  } else if (const auto* host = std::get_if<command::HostCall>(&work.command)) {
    host->call(host->context);
  }
}

}  // namespace reprise::detail
