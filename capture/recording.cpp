// SPDX-License-Identifier: Apache-2.0
#include <reprise/capture/recording.hpp>

#include <reprise/capture/dot_internal.hpp>

#include <atomic>
#include <new>
#include <ostream>
#include <sstream>
#include <utility>

namespace reprise {

namespace {

std::uint64_t next_id() noexcept {
  static std::atomic<std::uint64_t> last{0};
  // Relaxed: only the number matters, nothing is published with it.
  return last.fetch_add(1, std::memory_order_relaxed) + 1;
}

// A shape for each family of nodes: work, transfers, everything else.
const char* shape_of(const Command& command) noexcept {
  if (std::holds_alternative<command::Launch>(command)) return "box";
  if (std::holds_alternative<command::Copy>(command) ||
      std::holds_alternative<command::Fill>(command) ||
      std::holds_alternative<command::Write>(command)) {
    return "parallelogram";
  }
  return "ellipse";
}

using detail::put_quoted;

std::string label_of(const NodeView& node) {
  std::ostringstream label;
  label << node.index << ": " << node.name << '\n' << node.command;
  return label.str();
}

}  // namespace

Result<std::shared_ptr<const Recording>> Recording::seal(Recorder&& recorder,
                                                         const Options& options) noexcept {
  if (const auto analysed = recorder.analyse(); !analysed) return analysed.error();
  try {
    const auto recording = std::make_shared<Recording>(Private{});
    recording->id_ = next_id();
    recording->name_ = options.name;
    recording->owner_ = options.owner;
    recording->sets_ = recorder.hazards_->merged();
    recording->take_holds(options.slots);
    recording->nodes_ = {recorder.store_, *recorder.hazards_, recording->sets_.holds};
    const detail::MergedSets& sets = recording->sets_;
    const auto slots = recording->slots_.take(options.slots, recorder.store_, sets.inputs,
                                              sets.must_write, next_id);
    if (!slots) return slots.error();
    // From here on nothing fails.
    recording->nodes_.keep(recorder.store_);
    recorder.clear();
    return std::shared_ptr<const Recording>{recording};
  } catch (const std::bad_alloc&) {
    return Error{Errc::out_of_memory, 0, "no host memory to seal a recording"};
  }
}

void Recording::take_holds(std::span<const SlotSpec> slots) {
  for (const SlotSpec& slot : slots) {
    sets_.holds.insert(sets_.holds.end(), slot.copies.begin(), slot.copies.end());
  }
  for (const HoldRef& hold : sets_.holds) guarded_bytes_ += hold->size();
}

NodeView Recording::node(std::uint32_t index) const noexcept {
  REPRISE_CHECK(index < nodes_.size(), "a node of this recording");
  const PlanNode node = nodes_.node(index);
  std::span<const std::byte> arguments;
  if (const auto* launch = std::get_if<command::Launch>(&node.command)) {
    if (launch->arguments) arguments = {launch->arguments, launch->kernel->argument_bytes};
  }
  return {index,      node.command,       verb_of(node.command),
          node.name,  arguments,          nodes_.touches(index),
          node.after, nodes_.where(index)};
}

std::string Recording::to_dot() const {
  std::ostringstream out;
  out << "digraph ";
  put_quoted(out, name_.empty() ? std::string_view{"recording"} : std::string_view{name_});
  out << " {\n";
  for (std::uint32_t i = 0; i < node_count(); ++i) {
    const NodeView view = node(i);
    out << "  n" << i << " [shape=" << shape_of(view.command) << ", label=";
    put_quoted(out, label_of(view));
    if (view.where.line != 0) {
      out << ", tooltip=";
      put_quoted(out, std::string(view.where.file) + ':' + std::to_string(view.where.line));
    }
    out << "];\n";
    for (const std::uint32_t earlier : view.after) out << "  n" << earlier << " -> n" << i << ";\n";
  }
  out << "}\n";
  return out.str();
}

std::ostream& operator<<(std::ostream& out, const Recording& recording) {
  out << "recording " << recording.id();
  if (!recording.name().empty()) out << " '" << recording.name() << '\'';
  out << " of stream " << recording.owner() << ": " << recording.node_count() << " nodes, "
      << recording.edge_count() << " edges, " << recording.guarded_bytes() << " bytes in "
      << recording.holds().size() << " allocations\n";
  for (std::uint32_t i = 0; i < recording.node_count(); ++i) {
    const NodeView node = recording.node(i);
    out << "  " << i << ' ' << node.command;
    if (node.name != node.verb && node.name != name_of(node.command))
      out << " (" << node.name << ')';
    for (std::size_t j = 0; j < node.after.size(); ++j) {
      out << (j == 0 ? " after " : ", ") << node.after[j];
    }
    if (node.where.line != 0) out << " at " << node.where.file << ':' << node.where.line;
    out << '\n';
  }
  return out;
}

}  // namespace reprise
