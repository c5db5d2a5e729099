// SPDX-License-Identifier: Apache-2.0
#include <reprise/runtime/graph_file.hpp>

#include <boost/json.hpp>

#include <algorithm>
#include <array>
#include <cstring>
#include <initializer_list>
#include <limits>
#include <unordered_map>
#include <utility>
#include <vector>

namespace reprise {

namespace {

namespace json = boost::json;

constexpr std::string_view format_name = "reprise graph";
constexpr std::uint64_t format_version = 1;
// The format nests five deep; a text that nests more is none of ours.
constexpr std::size_t max_depth = 8;

// ---- bytes as text -----------------------------------------------------------------------------

std::string to_hex(std::span<const std::byte> bytes) {
  constexpr std::string_view digits = "0123456789abcdef";
  std::string text;
  for (const std::byte byte : bytes) {
    text += digits[std::to_integer<unsigned>(byte) >> 4];
    text += digits[std::to_integer<unsigned>(byte) & 15];
  }
  return text;
}

int digit_of(char letter) noexcept {
  if (letter >= '0' && letter <= '9') return letter - '0';
  if (letter >= 'a' && letter <= 'f') return letter - 'a' + 10;
  return -1;
}

/// Each parameter as "in4", "out8" or, for a value, "4": how it is used, and the bytes of one.
std::string signature_of(const KernelDefinition& kernel) {
  std::string text;
  for (const KernelParameter& parameter : kernel.parameters) {
    if (!text.empty()) text += ' ';
    if (parameter.is_buffer) {
      if (reads(parameter.access)) text += "in";
      if (must_write(parameter.access)) {
        text += "out";
      } else if (may_write(parameter.access)) {
        text += "update";
      }
    }
    text += std::to_string(parameter.element_size);
  }
  return text;
}

// ---- writing -----------------------------------------------------------------------------------

json::array to_json(const Dim3& extent) {
  return {extent.x, extent.y, extent.z};
}

json::array values_of(const SpecNode& node) {
  json::array values;
  for (const KernelParameter& parameter : node.kernel->parameters) {
    if (parameter.is_buffer) continue;
    values.emplace_back(
        to_hex(std::span(node.arguments).subspan(parameter.offset, parameter.element_size)));
  }
  return values;
}

json::object to_json(const GraphSpec& spec, std::uint32_t index) {
  const SpecNode& node = spec.node(index);
  json::object made;
  made["kind"] = to_string(node.kind);
  if (!node.name.empty()) made["name"] = node.name;
  switch (node.kind) {
    case SpecKind::kernel:
      made["kernel"] = node.kernel->name;
      made["signature"] = signature_of(*node.kernel);
      made["blocks"] = to_json(node.grid.blocks);
      made["threads"] = to_json(node.grid.threads);
      if (node.has_count) made["count"] = true;
      made["values"] = values_of(node);
      break;
    case SpecKind::fill: {
      std::array<std::byte, sizeof node.pattern> pattern{};
      std::memcpy(pattern.data(), &node.pattern, sizeof node.pattern);
      made["pattern"] = to_hex(std::span(pattern).first(node.pattern_bytes));
      break;
    }
    case SpecKind::copy:
    case SpecKind::empty: break;
    case SpecKind::host:
    case SpecKind::child:
      throw Failure(make_failure(Errc::unsupported, "save_graph", spec.name_of(index),
                                 "node " + std::to_string(index) + ": a " +
                                     std::string(to_string(node.kind)) + " node has no text"));
  }
  json::array uses;
  for (const SpecUse& use : node.uses) {
    uses.emplace_back(json::array{use.buffer, use.range.begin, use.range.end});
  }
  if (!uses.empty()) made["uses"] = std::move(uses);
  if (node.cost != 1) made["cost"] = node.cost;
  json::array after;
  for (const std::uint32_t on : spec.after(index)) after.emplace_back(on);
  if (!after.empty()) made["after"] = std::move(after);
  return made;
}

// ---- reading -----------------------------------------------------------------------------------

/// One object of the text and where it lies, so that failures can say so.
class Reader {
public:
  Reader(const json::object& object, std::string where)
      : object_(object), where_(std::move(where)) {}

  [[noreturn]] void reject(std::string_view field, std::string_view why) const {
    throw Failure(Errc::bad_format, "load_graph",
                  where_ + ", field '" + std::string(field) + "' " + std::string(why));
  }
  bool has(std::string_view field) const { return object_.contains(field); }
  /// Nothing may be there that is not understood: it would get lost.
  void expect_only(std::initializer_list<std::string_view> known) const {
    for (const auto& [key, value] : object_) {
      const std::string_view name = key;
      bool is_known = false;
      for (const std::string_view each : known) is_known = is_known || each == name;
      if (!is_known) reject(name, "is not known");
    }
  }

  std::string text(std::string_view field) const {
    const json::string* const found = at(field).if_string();
    if (found == nullptr) reject(field, "is no string");
    return std::string(found->data(), found->size());
  }
  std::string text_or_empty(std::string_view field) const {
    return has(field) ? text(field) : std::string{};
  }
  bool flag(std::string_view field) const {
    if (!has(field)) return false;
    const bool* const found = at(field).if_bool();
    if (found == nullptr) reject(field, "is neither true nor false");
    return *found;
  }
  const json::array& list(std::string_view field) const {
    static const json::array none;
    if (!has(field)) return none;
    const json::array* const found = at(field).if_array();
    if (found == nullptr) reject(field, "is no list");
    return *found;
  }
  std::uint64_t number(std::string_view field, std::uint64_t most) const {
    return number(field, at(field), most);
  }
  std::uint64_t number(std::string_view field, const json::value& value, std::uint64_t most) const {
    const std::int64_t* const small = value.if_int64();
    const std::uint64_t* const large = value.if_uint64();
    if ((small == nullptr && large == nullptr) || (small != nullptr && *small < 0)) {
      reject(field, "is no number from 0 on");
    }
    const std::uint64_t found = small != nullptr ? static_cast<std::uint64_t>(*small) : *large;
    if (found > most) {
      reject(field,
             "is " + std::to_string(found) + ", at most " + std::to_string(most) + " is allowed");
    }
    return found;
  }
  std::uint32_t index(std::string_view field, const json::value& value) const {
    return static_cast<std::uint32_t>(
        number(field, value, std::numeric_limits<std::uint32_t>::max()));
  }
  /// `count` bytes, as digits.
  std::vector<std::byte> bytes(std::string_view field, const json::value& value,
                               std::size_t count) const {
    const json::string* const found = value.if_string();
    if (found == nullptr || found->size() != 2 * count) {
      reject(field, "is not " + std::to_string(2 * count) + " digits");
    }
    std::vector<std::byte> bytes;
    for (std::size_t i = 0; i < found->size(); i += 2) {
      const int high = digit_of((*found)[i]);
      const int low = digit_of((*found)[i + 1]);
      if (high < 0 || low < 0) reject(field, "has a letter that is no digit");
      bytes.push_back(static_cast<std::byte>(16 * high + low));
    }
    return bytes;
  }
  Dim3 extent(std::string_view field) const {
    const json::array& found = list(field);
    if (found.size() != 3) reject(field, "is not three numbers");
    return {index(field, found[0]), index(field, found[1]), index(field, found[2])};
  }

private:
  const json::value& at(std::string_view field) const {
    const json::value* const found = object_.if_contains(field);
    if (found == nullptr) reject(field, "is missing");
    return *found;
  }

  const json::object& object_;
  const std::string where_;
};

using Kernels = std::unordered_map<std::string_view, KernelRef>;

void read_kernel(const Reader& from, const Kernels& kernels, SpecNode& node) {
  const std::string name = from.text("kernel");
  const auto found = kernels.find(name);
  if (found == kernels.end()) {
    throw Failure(make_failure(Errc::no_such_kernel, "load_graph", name, "no kernel of that name"));
  }
  node.kernel = found->second;
  const std::string signature = from.text("signature");
  if (const std::string own = signature_of(*node.kernel); own != signature) {
    throw Failure(make_failure(Errc::size_mismatch, "load_graph", name,
                               "the kernel takes (" + own + "), not (" + signature + ")"));
  }
  node.grid.blocks = from.extent("blocks");
  node.grid.threads = from.extent("threads");
  node.has_count = from.flag("count");
  node.arguments.resize(node.kernel->argument_bytes);
  const json::array& values = from.list("values");
  std::size_t next_value = 0;
  std::size_t next_use = 0;
  for (const KernelParameter& parameter : node.kernel->parameters) {
    std::byte* const at = node.arguments.data() + parameter.offset;
    if (parameter.is_buffer) {
      if (next_use == node.uses.size()) from.reject("uses", "has too few entries");
      SpecUse& use = node.uses[next_use++];
      use.access = node.has_count ? at_most(parameter.access) : parameter.access;
      const detail::BufferSlot slot{nullptr, use.range.size() / parameter.element_size};
      std::memcpy(at, &slot, sizeof slot);
    } else {
      if (next_value == values.size()) from.reject("values", "has too few entries");
      const auto value = from.bytes("values", values[next_value++], parameter.element_size);
      std::memcpy(at, value.data(), value.size());
    }
  }
  if (next_value != values.size()) from.reject("values", "has too many entries");
  if (node.has_count) {
    if (next_use == node.uses.size()) from.reject("uses", "has too few entries");
    node.uses[next_use++].access = Access::reads;
  }
  if (next_use != node.uses.size()) from.reject("uses", "has too many entries");
}

void expect_uses(const Reader& from, SpecNode& node, std::initializer_list<Access> accesses) {
  if (node.uses.size() != accesses.size()) {
    from.reject("uses", "has not " + std::to_string(accesses.size()) + " entries");
  }
  std::size_t i = 0;
  for (const Access access : accesses) node.uses[i++].access = access;
}

SpecNode read_node(const Reader& from, const Kernels& kernels) {
  SpecNode node;
  const std::string kind = from.text("kind");
  node.name = from.text_or_empty("name");
  for (const json::value& entry : from.list("uses")) {
    const json::array* const use = entry.if_array();
    if (use == nullptr || use->size() != 3)
      from.reject("uses", "has an entry that is not three numbers");
    constexpr auto most = std::numeric_limits<std::uint64_t>::max();
    node.uses.push_back(
        {from.index("uses", (*use)[0]),
         {from.number("uses", (*use)[1], most), from.number("uses", (*use)[2], most)},
         Access::none});
    if (node.uses.back().range.begin > node.uses.back().range.end) {
      from.reject("uses", "has an entry that ends before it begins");
    }
  }
  if (from.has("cost")) {
    // Costs of a path are added up.
    node.cost = from.number("cost", std::numeric_limits<std::uint32_t>::max());
  }
  if (kind == "kernel") {
    from.expect_only({"kind", "name", "uses", "cost", "after", "kernel", "signature", "blocks",
                      "threads", "count", "values"});
    node.kind = SpecKind::kernel;
    read_kernel(from, kernels, node);
  } else if (kind == "copy") {
    from.expect_only({"kind", "name", "uses", "cost", "after"});
    node.kind = SpecKind::copy;
    expect_uses(from, node, {Access::must_write, Access::reads});
  } else if (kind == "fill") {
    from.expect_only({"kind", "name", "uses", "cost", "after", "pattern"});
    node.kind = SpecKind::fill;
    expect_uses(from, node, {Access::must_write});
    const std::string digits = from.text("pattern");
    if (digits.size() > 16 || digits.size() < 2) from.reject("pattern", "is not 1 to 8 bytes");
    const auto pattern = from.bytes("pattern", json::value(digits), digits.size() / 2);
    std::memcpy(&node.pattern, pattern.data(), pattern.size());
    node.pattern_bytes = static_cast<std::uint32_t>(pattern.size());
  } else if (kind == "empty") {
    from.expect_only({"kind", "name", "cost", "after"});
  } else {
    from.reject("kind", "is '" + kind + "', which is not known");
  }
  return node;
}

const json::object& object_at(const json::value& value, const std::string& where) {
  const json::object* const found = value.if_object();
  if (found == nullptr) throw Failure(Errc::bad_format, "load_graph", where + " is no object");
  return *found;
}

void read_buffers(const Reader& file, GraphSpec& spec) {
  std::uint32_t number = 0;
  for (const json::value& entry : file.list("buffers")) {
    const std::string where = "buffer " + std::to_string(number++);
    const Reader from(object_at(entry, where), where);
    from.expect_only({"name", "bytes", "element_bytes"});
    spec.add_buffer({from.text_or_empty("name"),
                     from.number("bytes", std::numeric_limits<std::uint64_t>::max() / 2),
                     static_cast<std::uint32_t>(
                         from.number("element_bytes", std::numeric_limits<std::uint32_t>::max()))});
  }
}

void read_nodes(const Reader& file, const Kernels& kernels, GraphSpec& spec) {
  const json::array& nodes = file.list("nodes");
  for (std::uint32_t number = 0; number < nodes.size(); ++number) {
    const std::string where = "node " + std::to_string(number);
    spec.add_node(read_node({object_at(nodes[number], where), where}, kernels));
  }
  // Edges may lead to nodes that come later.
  for (std::uint32_t number = 0; number < nodes.size(); ++number) {
    const Reader from(nodes[number].get_object(), "node " + std::to_string(number));
    std::vector<std::uint32_t> after;
    for (const json::value& on : from.list("after")) after.push_back(from.index("after", on));
    // Rising, so that none has to be put before others.
    std::sort(after.begin(), after.end());
    for (const std::uint32_t on : after) spec.depend(number, on);
  }
}

}  // namespace

std::string save_graph(const GraphSpec& spec, std::string_view name) {
  json::object file;
  file["format"] = format_name;
  file["version"] = format_version;
  file["name"] = name;
  file["edges"] = spec.edges() == SpecEdges::given ? "given" : "derived";
  json::array buffers;
  for (std::uint32_t i = 0; i < spec.buffer_count(); ++i) {
    const SpecBuffer& buffer = spec.buffer(i);
    buffers.emplace_back(json::object{
        {"name", buffer.name}, {"bytes", buffer.bytes}, {"element_bytes", buffer.element_bytes}});
  }
  file["buffers"] = std::move(buffers);
  json::array nodes;
  for (std::uint32_t i = 0; i < spec.node_count(); ++i) nodes.emplace_back(to_json(spec, i));
  file["nodes"] = std::move(nodes);
  return json::serialize(file);
}

GraphFile load_graph(std::string_view text, std::span<const KernelRef> kernels) {
  json::parse_options options;
  options.max_depth = max_depth;
  json::error_code error;
  const json::value whole = json::parse({text.data(), text.size()}, error, {}, options);
  if (error) throw Failure(Errc::bad_format, "load_graph", "no JSON: " + error.message());
  const Reader file(object_at(whole, "the text"), "the text");
  if (file.text("format") != format_name) {
    file.reject("format", "is not '" + std::string(format_name) + "'");
  }
  if (const auto version = file.number("version", std::numeric_limits<std::uint64_t>::max());
      version != format_version) {
    file.reject("version", "is " + std::to_string(version) + ", and only " +
                               std::to_string(format_version) + " is known");
  }
  file.expect_only({"format", "version", "name", "edges", "buffers", "nodes"});
  Kernels by_name;
  for (const KernelRef& kernel : kernels) {
    if (!by_name.emplace(kernel->name, kernel).second) {
      throw Failure(make_failure(Errc::invalid_argument, "load_graph", kernel->name,
                                 "two of the kernels have this name"));
    }
  }
  const std::string edges = file.text("edges");
  if (edges != "given" && edges != "derived") file.reject("edges", "is '" + edges + "'");
  GraphFile made{file.text_or_empty("name"),
                 GraphSpec(edges == "given" ? SpecEdges::given : SpecEdges::derived)};
  read_buffers(file, made.spec);
  read_nodes(file, by_name, made.spec);
  return made;
}

}  // namespace reprise
