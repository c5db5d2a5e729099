// SPDX-License-Identifier: Apache-2.0
#include <reprise/capture/graph_spec.hpp>

#include <reprise/capture/dot_internal.hpp>

#include <algorithm>
#include <ostream>
#include <sstream>
#include <utility>

namespace reprise {

namespace {

const char* verb_for(const SpecNode& node) noexcept {
  if (node.repeat == GraphRepeat::if_true) return "add_if";
  if (node.repeat == GraphRepeat::while_true) return "add_while";
  switch (node.kind) {
    case SpecKind::kernel: return "add_kernel";
    case SpecKind::copy: return "add_copy";
    case SpecKind::fill: return "add_fill";
    case SpecKind::host: return "add_host";
    case SpecKind::empty: return "add_empty";
    case SpecKind::child: return "add_child";
  }
  return "add";
}

std::string_view name_for(const SpecNode& node) noexcept {
  if (!node.name.empty()) return node.name;
  if (node.kind == SpecKind::kernel && node.kernel) return node.kernel->name;
  return to_string(node.kind);
}

std::string label_for(std::uint32_t index, const SpecNode& node) {
  return "node " + std::to_string(index) + " '" + std::string(name_for(node)) + '\'';
}

[[noreturn]] void no_such(const char* verb, const char* what, std::uint64_t index,
                          std::uint64_t count) {
  throw Failure(Errc::out_of_range, verb,
                std::string("no ") + what + ' ' + std::to_string(index) + " among " +
                    std::to_string(count));
}

std::string text_of(ByteRange range) {
  return '[' + std::to_string(range.begin) + ", " + std::to_string(range.end) + ')';
}

void put_what(std::ostream& out, const SpecNode& node) {
  const auto put = [&](const Dim3& d) { out << d.x << 'x' << d.y << 'x' << d.z; };
  out << to_string(node.kind);
  if (node.kind == SpecKind::kernel) {
    out << " '" << node.kernel->name << "' " << (node.has_count ? "up to " : "");
    put(node.grid.blocks);
    out << " blocks of ";
    put(node.grid.threads);
  } else if (node.kind == SpecKind::copy || node.kind == SpecKind::fill) {
    out << ' ' << node.uses[0].range.size() << " bytes";
  }
  put_repeat(out, node.repeat, node.at_most);
  if (node.kind == SpecKind::fill) {
    out << " with 0x" << std::hex << node.pattern << std::dec;
  }
}

}  // namespace

std::string_view to_string(SpecKind kind) noexcept {
  switch (kind) {
    case SpecKind::kernel: return "kernel";
    case SpecKind::copy: return "copy";
    case SpecKind::fill: return "fill";
    case SpecKind::host: return "host";
    case SpecKind::empty: return "empty";
    case SpecKind::child: return "child";
  }
  return "node";
}

// ---- adding ------------------------------------------------------------------------------------

std::uint32_t GraphSpec::add_buffer(SpecBuffer buffer) {
  if (buffer.element_bytes == 0 || buffer.bytes % buffer.element_bytes != 0) {
    throw Failure(Errc::invalid_argument, "add_buffer",
                  "buffer '" + buffer.name + "' of " + std::to_string(buffer.bytes) +
                      " bytes in elements of " + std::to_string(buffer.element_bytes));
  }
  buffers_.push_back(std::move(buffer));
  return buffer_count() - 1;
}

std::uint32_t GraphSpec::add_node(SpecNode node) {
  check(node);
  after_.reserve(after_.size() + 1);
  nodes_.push_back(std::move(node));
  after_.emplace_back();
  return node_count() - 1;
}

void GraphSpec::depend(std::uint32_t node, std::uint32_t on) {
  for (const std::uint32_t each : {node, on}) {
    if (each >= node_count()) no_such("depend", "node", each, node_count());
  }
  if (node == on) {
    throw Failure(make_failure(Errc::invalid_argument, "depend", label_for(node, nodes_[node]),
                               "a node cannot run after itself"));
  }
  auto& after = after_[node];
  const auto at = std::lower_bound(after.begin(), after.end(), on);
  if (at != after.end() && *at == on) return;
  after.insert(at, on);
  ++edge_count_;
}

void GraphSpec::set_name(std::uint32_t index, std::string_view name) {
  (void)node(index);
  nodes_[index].name = name;
}

void GraphSpec::reject(const SpecNode& node, Errc code, std::string_view message) const {
  throw Failure(make_failure(code, verb_for(node), label_for(node_count(), node), message));
}

void GraphSpec::check_use(const SpecNode& node, std::size_t number, std::uint64_t unit) const {
  const SpecUse& use = node.uses[number];
  const auto what = [&] { return "argument " + std::to_string(number) + ": "; };
  if (use.buffer >= buffer_count()) {
    reject(node, Errc::out_of_range,
           what() + "no buffer " + std::to_string(use.buffer) + " among " +
               std::to_string(buffer_count()));
  }
  const SpecBuffer& buffer = buffers_[use.buffer];
  if (use.range.begin > use.range.end || use.range.end > buffer.bytes) {
    reject(node, Errc::out_of_range,
           what() + "bytes " + text_of(use.range) + " of buffer '" + buffer.name + "' of " +
               std::to_string(buffer.bytes));
  }
  if (use.range.size() % unit != 0) {
    reject(node, Errc::misaligned,
           what() + std::to_string(use.range.size()) + " bytes are no multiple of " +
               std::to_string(unit));
  }
}

/// A number that the device reads.
void GraphSpec::check_word(const SpecNode& node, const char* what, ByteRange at) const {
  if (at.size() != 4) {
    reject(node, Errc::size_mismatch,
           std::string(what) + " of " + std::to_string(at.size()) + " bytes instead of 4");
  }
  if (at.begin % 4 != 0) {
    reject(node, Errc::misaligned, std::string(what) + " at byte " + std::to_string(at.begin));
  }
}

void GraphSpec::check_repeat(const SpecNode& node) const {
  check_word(node, "a condition", node.uses.empty() ? ByteRange{} : node.uses[0].range);
  if (node.repeat == GraphRepeat::while_true && node.at_most == 0) {
    reject(node, Errc::invalid_argument, "a loop that runs at most 0 times");
  }
}

void GraphSpec::check(const SpecNode& node) const {
  const auto expect_uses = [&](std::size_t count) {
    if (node.uses.size() == count) return;
    reject(node, Errc::size_mismatch,
           std::to_string(node.uses.size()) + " buffers instead of " + std::to_string(count));
  };
  std::vector<std::uint64_t> units(node.uses.size(), 1);
  if (node.kind == SpecKind::kernel) {
    if (!node.kernel) reject(node, Errc::empty_handle, "the kernel is empty");
    std::vector<std::uint64_t> elements;
    for (const KernelParameter& parameter : node.kernel->parameters) {
      if (parameter.is_buffer) elements.push_back(parameter.element_size);
    }
    if (node.has_count) elements.push_back(4);
    expect_uses(elements.size());
    if (node.has_count) check_word(node, "a count", node.uses.back().range);
    units = std::move(elements);
    if (node.arguments.size() != node.kernel->argument_bytes) {
      reject(node, Errc::size_mismatch,
             std::to_string(node.arguments.size()) + " bytes of arguments instead of " +
                 std::to_string(node.kernel->argument_bytes));
    }
  } else if (node.kind == SpecKind::copy) {
    expect_uses(2);
  } else if (node.kind == SpecKind::fill) {
    expect_uses(1);
    if (!is_power_of_two(node.pattern_bytes) || node.pattern_bytes > 8) {
      reject(node, Errc::invalid_argument,
             "a pattern of " + std::to_string(node.pattern_bytes) + " bytes");
    }
    units[0] = node.pattern_bytes;
  } else if (node.kind == SpecKind::host) {
    if (node.call == nullptr) reject(node, Errc::invalid_argument, "the function is empty");
  } else if (node.kind == SpecKind::child) {
    if (!node.callee) reject(node, Errc::empty_graph, "the graph handle is empty");
    if (node.repeat != GraphRepeat::once) check_repeat(node);
  }
  for (std::size_t i = 0; i < node.uses.size(); ++i) check_use(node, i, units[i]);
  if (node.kind != SpecKind::copy) return;
  const SpecUse& to = node.uses[0];
  const SpecUse& from = node.uses[1];
  if (to.range.size() != from.range.size()) {
    reject(node, Errc::size_mismatch,
           std::to_string(from.range.size()) + " bytes into " + std::to_string(to.range.size()));
  }
  if (to.buffer == from.buffer && to.range.overlaps(from.range)) {
    reject(node, Errc::invalid_argument,
           "source " + text_of(from.range) + " and destination " + text_of(to.range) + " overlap");
  }
}

// ---- looking -----------------------------------------------------------------------------------

const SpecNode& GraphSpec::node(std::uint32_t index) const {
  if (index >= node_count()) no_such("node", "node", index, node_count());
  return nodes_[index];
}

const SpecBuffer& GraphSpec::buffer(std::uint32_t index) const {
  if (index >= buffer_count()) no_such("buffer", "buffer", index, buffer_count());
  return buffers_[index];
}

std::string_view GraphSpec::name_of(std::uint32_t index) const {
  return name_for(node(index));
}

std::span<const std::uint32_t> GraphSpec::after(std::uint32_t index) const {
  (void)node(index);
  return after_[index];
}

std::string GraphSpec::label_of(std::uint32_t index) const {
  return label_for(index, node(index));
}

std::vector<std::uint32_t> GraphSpec::before(std::uint32_t index) const {
  (void)node(index);
  std::vector<std::uint32_t> before;
  for (std::uint32_t i = 0; i < node_count(); ++i) {
    if (std::binary_search(after_[i].begin(), after_[i].end(), index)) before.push_back(i);
  }
  return before;
}

bool GraphSpec::reaches(std::uint32_t from, std::uint32_t to) const {
  (void)node(from);
  (void)node(to);
  std::vector<bool> seen(node_count());
  std::vector<std::uint32_t> stack{to};
  while (!stack.empty()) {
    const std::uint32_t at = stack.back();
    stack.pop_back();
    if (at == from) return true;
    if (seen[at]) continue;
    seen[at] = true;
    stack.insert(stack.end(), after_[at].begin(), after_[at].end());
  }
  return false;
}

// ---- telling -----------------------------------------------------------------------------------

std::string GraphSpec::to_dot(std::string_view name) const {
  const SpecOrder order = this->order();
  std::ostringstream out;
  out << "digraph ";
  detail::put_quoted(out, name.empty() ? "graph" : name);
  out << " {\n";
  for (std::uint32_t i = 0; i < node_count(); ++i) {
    const SpecNode& node = nodes_[i];
    std::ostringstream label;
    label << i << ": " << name_for(node) << '\n';
    put_what(label, node);
    const bool transfer = node.kind == SpecKind::copy || node.kind == SpecKind::fill;
    out << "  n" << i << " [shape="
        << (node.kind == SpecKind::kernel ? "box"
            : transfer                    ? "parallelogram"
                                          : "ellipse")
        << ", label=";
    detail::put_quoted(out, label.str());
    out << "];\n";
    for (const std::uint32_t on : after_[i]) out << "  n" << on << " -> n" << i << ";\n";
    for (const std::uint32_t on : order.after[i]) {
      if (std::binary_search(after_[i].begin(), after_[i].end(), on)) continue;
      out << "  n" << on << " -> n" << i << " [style=dashed];\n";
    }
  }
  out << "}\n";
  return out.str();
}

std::ostream& operator<<(std::ostream& out, const GraphSpec& spec) {
  out << "graph of " << spec.node_count() << " nodes, " << spec.edge_count() << " given edges, "
      << spec.buffer_count() << " buffers\n";
  for (std::uint32_t i = 0; i < spec.node_count(); ++i) {
    const SpecNode& node = spec.nodes_[i];
    out << "  " << i << ' ';
    put_what(out, node);
    if (!node.name.empty()) out << " (" << node.name << ')';
    const char* between = " after ";
    for (const std::uint32_t on : spec.after_[i]) out << std::exchange(between, ", ") << on;
    out << '\n';
  }
  return out;
}

}  // namespace reprise
