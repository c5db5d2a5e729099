// SPDX-License-Identifier: Apache-2.0
#include <reprise/runtime/actor.hpp>

#include <reprise/memory/picture.hpp>
#include <reprise/runtime/graph_state.hpp>

#include <unordered_map>
#include <utility>
#include <vector>

namespace reprise::detail {

// What a device tells about its memory.

namespace {

/// The allocations that `graph` guards, and what its nodes do with them.
GraphMemory describe(const GraphState& graph, std::uint64_t base) {
  const Recording& recording = *graph.recording;
  GraphMemory memory;
  memory.id = recording.id();
  memory.name = recording.name();
  memory.guarded_bytes = recording.guarded_bytes();
  memory.retained_bytes = recording.retained_bytes();
  std::unordered_map<const Hold*, std::size_t> places;
  std::vector<std::vector<ByteRange>> touched;
  for (const HoldRef& hold : recording.holds()) {
    if (hold->device.block == nullptr) continue;
    const std::uint64_t begin = hold->device.address - base;
    places.emplace(hold.get(), memory.ranges.size());
    memory.ranges.push_back({{begin, begin + hold->size()}});
  }
  touched.resize(memory.ranges.size());
  const auto add = [&](std::span<const Touch> touches, Access access) {
    for (const Touch& touch : touches) {
      const auto place = places.find(touch.hold.get());
      if (place == places.end()) continue;
      GuardedRange& range = memory.ranges[place->second];
      range.access = range.access | access;
      touched[place->second].push_back(touch.range);
    }
  };
  add(recording.reads(), Access::reads);
  add(recording.may_write(), Access::may_write);
  for (std::size_t i = 0; i < touched.size(); ++i) {
    memory.ranges[i].touched = covered_bytes(std::move(touched[i]));
  }
  return memory;
}

}  // namespace

MemoryReport Actor::memory_report() {
  retire();
  pool_.collect([this](StreamPoint point) { return is_finished(point); });
  MemoryReport report = make_report(pool_);
  report.staging = core_.staging().stats();
  report.staging_limit = core_.staging().limit();
  const std::uint64_t base = backend_.pages().base();
  for (const GraphState* graph = graphs_; graph != nullptr; graph = graph->next) {
    report.graphs.push_back(describe(*graph, base));
  }
  return report;
}

MemorySnapshot Actor::memory_snapshot() {
  MemorySnapshot snapshot;
  snapshot.report = memory_report();
  const std::uint64_t base = backend_.pages().base();
  for (const PoolBlock* block : pool_.blocks()) {
    const std::uint64_t begin = block->address() - base;
    const bool live = block->state() == BlockState::live;
    snapshot.blocks.push_back(
        {{begin, begin + block->rounded_size()}, block->state(), live ? block->size() : 0});
    const auto* const hold = static_cast<const Hold*>(block->noted_owner());
    if (hold == nullptr) continue;
    hold->device.taint.each({0, hold->size()}, [&](ByteRange range, const ClaimPtr& claim) {
      snapshot.marks.push_back({{begin + range.begin, begin + range.end}, claim});
    });
  }
  return snapshot;
}

// The control lane keeps no order between threads, and what it brings changes the books. A question
// that was just found may lie before a drop that was posted first.
bool Actor::defers(ControlNode& question) noexcept {
  if (is_answering_) return false;
  question.next = questions_;
  questions_ = &question;
  return true;
}

void Actor::answer_questions() noexcept {
  is_answering_ = true;
  while (questions_ != nullptr) {
    ControlNode& question = *std::exchange(questions_, questions_->next);
    question.run(question, this);
  }
  is_answering_ = false;
}

}  // namespace reprise::detail
