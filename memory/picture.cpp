// SPDX-License-Identifier: Apache-2.0
#include <reprise/memory/picture.hpp>

#include <algorithm>
#include <array>
#include <cstddef>

// A row is cut into columns of one unit. What lies in a column is decided in layers, later over
// earlier ones, and each layer becomes rectangles where neighbouring columns agree; so the size of
// the picture is bounded by its rows, whatever is in them.

namespace reprise {

namespace {

constexpr std::size_t columns = 960;
constexpr unsigned left = 130;
constexpr unsigned row_height = 18;
constexpr unsigned row_distance = 24;
constexpr unsigned first_row = 92;
constexpr std::size_t most_rows = 200;
constexpr std::size_t most_graphs = 40;

constexpr std::string_view style = R"svg(<style>
  .paper { fill: #ffffff } .row { fill: none; stroke: #9aa3af }
  .live { fill: #6f9ce8 } .idle { fill: #eceff3 } .waiting { fill: #f2b950 }
  .pinned { fill: #9d8fd1 } .gone { fill: none; stroke: #9aa3af; stroke-dasharray: 3 3 }
  .edge { stroke: #ffffff; stroke-width: 1 } .hatch { stroke: #16324f; stroke-width: 1.4 }
  .ran { fill: #d21f2b } .held { fill: #ef8087 } .unwritten { fill: #c3cbd6 }
  text { fill: #1f2937; font: 13px sans-serif } .title { font-size: 18px; font-weight: 600 }
  .small { font-size: 11px }
  @media (prefers-color-scheme: dark) {
    .paper { fill: #14171c } .idle { fill: #2a3038 } .live { fill: #44699f }
    .waiting { fill: #a9781f } .pinned { fill: #665a9e } .edge { stroke: #14171c }
    .hatch { stroke: #d5e3f5 } .unwritten { fill: #6b7280 } text { fill: #e5e9f0 }
  }
</style>
<defs><pattern id="guard" width="7" height="7" patternUnits="userSpaceOnUse"
 patternTransform="rotate(45)"><line class="hatch" x1="0" y1="0" x2="0" y2="7"/></pattern></defs>
)svg";

/// How many bytes of valid UTF-8 begin at `at`; 0 if none do, or if XML does not allow them.
std::size_t utf8_length(std::string_view text, std::size_t at) noexcept {
  const auto byte = [&](std::size_t i) {
    return i < text.size() ? static_cast<unsigned char>(text[i]) : 0U;
  };
  const unsigned first = byte(at);
  if (first < 0x80) return first >= 0x20 && first != 0x7f ? 1 : 0;
  const std::size_t length = first >= 0xf0 ? 4 : first >= 0xe0 ? 3 : 2;
  if (first < 0xc2 || first > 0xf4) return 0;
  std::uint32_t code = first & (0xffU >> (length + 1));
  for (std::size_t i = 1; i < length; ++i) {
    if ((byte(at + i) & 0xc0) != 0x80) return 0;
    code = code << 6 | (byte(at + i) & 0x3f);
  }
  const bool too_long = code < (length == 3 ? 0x800U : length == 4 ? 0x10000U : 0x80U);
  const bool no_character = (code >= 0xd800 && code < 0xe000) || code > 0x10ffff ||
                            (code & 0xfffe) == 0xfffe || (code >= 0x80 && code < 0xa0);
  return too_long || no_character ? 0 : length;
}

/// `text` as it may stand in an SVG file; what may not stand there at all becomes a question mark.
std::string escaped(std::string_view text) {
  std::string out;
  for (std::size_t i = 0; i < text.size();) {
    switch (text[i]) {
      case '&': out += "&amp;"; break;
      case '<': out += "&lt;"; break;
      case '>': out += "&gt;"; break;
      case '"': out += "&quot;"; break;
      case '\'': out += "&#39;"; break;
      default:
        const std::size_t length = utf8_length(text, i);
        out += length == 0 ? std::string_view("?") : text.substr(i, length);
        i += std::max<std::size_t>(length, 1);
        continue;
    }
    ++i;
  }
  return out;
}

struct Row {
  ByteRange bytes;
  bool mapped = true;
};

class Drawing {
public:
  Drawing(const MemorySnapshot& snapshot, std::string_view title)
      : snapshot_(snapshot), page_(std::max<std::uint64_t>(snapshot.report.page_size, 1)) {
    find_rows();
    head(title);
    for (std::size_t i = 0; i < rows_.size(); ++i) row(i);
    y_ = first_row + static_cast<unsigned>(rows_.size()) * row_distance + 12;
    if (left_out_ != 0) {
      words(left, y_, "", "and " + std::to_string(left_out_) + " more rows");
      y_ += row_distance;
    }
    legend();
    graphs();
  }

  std::string finish() {
    const std::string size =
        std::to_string(left + columns + 30) + ' ' + std::to_string(y_ + row_distance);
    return "<svg xmlns=\"http://www.w3.org/2000/svg\" role=\"img\" viewBox=\"0 0 " + size +
           "\">\n" + out_ + "</svg>\n";
  }

private:
  using Cells = std::array<std::uint32_t, columns>;

  // ---- rows

  void add_row(ByteRange bytes, bool mapped) {
    if (rows_.size() < most_rows) {
      rows_.push_back({bytes, mapped});
    } else {
      ++left_out_;
    }
  }

  /// A row for each page, but one for all whole pages of a block that has several.
  void find_rows() {
    std::uint64_t at = 0;
    for (const MemorySnapshot::Block& block : snapshot_.blocks) {
      const bool mapped = block.state != BlockState::hole && block.state != BlockState::mapping;
      const bool is_rest = !mapped && &block == &snapshot_.blocks.back();
      if (is_rest || block.bytes.end <= at) continue;
      // The page that it begins in the middle of has its row already.
      const std::uint64_t whole_end = block.bytes.end / page_ * page_;
      if (whole_end > at) {
        add_row({at, whole_end}, mapped);
        at = whole_end;
      }
      if (block.bytes.end > at) {
        add_row({at, at + page_}, true);
        at += page_;
      }
    }
  }

  std::string label_of(const Row& row) const {
    const std::uint64_t first = row.bytes.begin / page_;
    const std::uint64_t count = row.bytes.size() / page_;
    if (count <= 1) return "page " + std::to_string(first);
    return "pages " + std::to_string(first) + "–" + std::to_string(first + count - 1);
  }

  void row(std::size_t index) {
    const Row& row = rows_[index];
    const unsigned y = first_row + static_cast<unsigned>(index) * row_distance;
    words(left - 8, y + 13, "text-anchor=\"end\"", label_of(row));
    if (!row.mapped) {
      rectangle("gone", 0, columns, y, row_height, bytes_text(row.bytes.size()) + " not mapped");
      return;
    }
    blocks(row, y);
    guards(row, y);
    marks(row, y);
    rectangle("row", 0, columns, y, row_height, {});
  }

  // ---- layers

  /// The columns of `row` that `range` lies in, at least one if any of it does.
  static ByteRange columns_of(const Row& row, ByteRange range) {
    const ByteRange part = range.intersect(row.bytes);
    if (part.empty()) return {};
    const auto scaled = [&](std::uint64_t at) {
      return static_cast<std::uint64_t>(static_cast<long double>(at - row.bytes.begin) * columns /
                                        static_cast<long double>(row.bytes.size()));
    };
    const std::uint64_t begin = std::min<std::uint64_t>(scaled(part.begin), columns - 1);
    return {begin, std::clamp<std::uint64_t>(scaled(part.end), begin + 1, columns)};
  }

  static void paint(Cells& cells, ByteRange where, std::uint32_t value) {
    std::fill(cells.begin() + static_cast<std::ptrdiff_t>(where.begin),
              cells.begin() + static_cast<std::ptrdiff_t>(where.end), value);
  }

  /// Calls draw(value, begin, end) for each stretch of equal columns that are not 0.
  template <class F>
  static void each_stretch(const Cells& cells, F draw) {
    for (std::size_t begin = 0; begin < columns;) {
      std::size_t end = begin + 1;
      while (end < columns && cells[end] == cells[begin]) ++end;
      if (cells[begin] != 0) draw(cells[begin] - 1, begin, end);
      begin = end;
    }
  }

  template <class Items>
  static auto first_in(const Items& items, const Row& row) {
    return std::partition_point(items.begin(), items.end(), [&](const auto& item) {
      return item.bytes.end <= row.bytes.begin;
    });
  }

  static unsigned layer_of(BlockState state) noexcept {
    switch (state) {
      case BlockState::live: return 3;
      case BlockState::pinned: return 2;
      case BlockState::waiting:
      case BlockState::crowded: return 1;
      default: return 0;
    }
  }

  void blocks(const Row& row, unsigned y) {
    static constexpr const char* classes[] = {"idle", "waiting", "pinned", "live"};
    const auto& blocks = snapshot_.blocks;
    Cells cells{};
    for (unsigned layer = 0; layer < 4; ++layer) {
      for (auto at = first_in(blocks, row); at != blocks.end() && at->bytes.begin < row.bytes.end;
           ++at) {
        if (layer_of(at->state) != layer || at->state == BlockState::hole) continue;
        paint(cells, columns_of(row, at->bytes),
              static_cast<std::uint32_t>(at - blocks.begin()) + 1);
      }
    }
    each_stretch(cells, [&](std::uint32_t index, std::size_t begin, std::size_t end) {
      const MemorySnapshot::Block& block = blocks[index];
      rectangle(std::string("edge ") + classes[layer_of(block.state)], begin, end, y, row_height,
                describe(block));
    });
  }

  void guards(const Row& row, unsigned y) {
    Cells cells{};
    for (const GraphMemory& graph : snapshot_.report.graphs) {
      for (auto at = first_in(graph.ranges, row);
           at != graph.ranges.end() && at->bytes.begin < row.bytes.end; ++at) {
        paint(cells, columns_of(row, at->bytes), 1);
      }
    }
    each_stretch(cells, [&](std::uint32_t, std::size_t begin, std::size_t end) {
      out_ += "<rect fill=\"url(#guard)\" pointer-events=\"none\"";
      place(begin, end, y, row_height);
      out_ += "/>\n";
    });
  }

  static unsigned layer_of(const MemorySnapshot::Mark& mark) noexcept {
    switch (mark.claim->kind) {
      case ClaimKind::unwritten: return 0;
      case ClaimKind::not_started: return 1;
      case ClaimKind::ran: break;
    }
    return 2;
  }

  void marks(const Row& row, unsigned y) {
    static constexpr const char* classes[] = {"unwritten", "held", "ran"};
    const auto& marks = snapshot_.marks;
    Cells cells{};
    for (unsigned layer = 0; layer < 3; ++layer) {
      for (auto at = first_in(marks, row); at != marks.end() && at->bytes.begin < row.bytes.end;
           ++at) {
        if (layer_of(*at) != layer) continue;
        paint(cells, columns_of(row, at->bytes),
              static_cast<std::uint32_t>(at - marks.begin()) + 1);
      }
    }
    each_stretch(cells, [&](std::uint32_t index, std::size_t begin, std::size_t end) {
      const unsigned layer = layer_of(marks[index]);
      const unsigned height = layer == 0 ? 4 : row_height / 2;
      rectangle(classes[layer], begin, end, y + row_height - height, height,
                describe(marks[index]));
    });
  }

  // ---- words

  static std::string describe(const MemorySnapshot::Block& block) {
    const std::string where =
        bytes_text(block.bytes.size()) + " at " + std::to_string(block.bytes.begin);
    switch (block.state) {
      case BlockState::live: return bytes_text(block.asked) + " in use, " + where;
      case BlockState::pinned: return where + ", released, under a guard";
      case BlockState::waiting:
      case BlockState::crowded: return where + ", released, waits for its last users";
      default: return where + ", free";
    }
  }

  static std::string describe(const MemorySnapshot::Mark& mark) {
    const std::string where =
        bytes_text(mark.bytes.size()) + " at " + std::to_string(mark.bytes.begin);
    if (mark.claim->kind == ClaimKind::unwritten) return where + ", not written yet";
    std::string text = where + ", failed";
    if (mark.claim->kind == ClaimKind::not_started) text += " without being touched";
    if (mark.claim->failure) text += ": " + mark.claim->failure->text();
    return text;
  }

  void head(std::string_view title) {
    const PoolStats& pool = snapshot_.report.pool;
    out_ += "<title>" + escaped(title) + "</title>\n";
    out_ += style;
    out_ += "<rect class=\"paper\" width=\"100%\" height=\"100%\"/>\n";
    words(left, 34, "class=\"title\"", title);
    words(left, 58, "",
          bytes_text(pool.reserved) + " mapped in pages of " + bytes_text(page_) + ", limit " +
              bytes_text(snapshot_.report.limit) + ", at most " + bytes_text(pool.peak_reserved) +
              " so far");
    words(left, 78, "class=\"small\"", "a row is a page, or all whole pages of one block");
  }

  std::uint64_t marked(ClaimKind kind) const {
    std::uint64_t bytes = 0;
    for (const MemorySnapshot::Mark& mark : snapshot_.marks) {
      if (mark.claim->kind == kind) bytes += mark.bytes.size();
    }
    return bytes;
  }

  void legend() {
    const PoolStats& pool = snapshot_.report.pool;
    std::uint64_t pinned = 0;
    for (const MemorySnapshot::Block& block : snapshot_.blocks) {
      if (block.state == BlockState::pinned) pinned += block.bytes.size();
    }
    const unsigned top = y_;
    entry("live", "in use: " + bytes_text(pool.in_use) + " in " + std::to_string(pool.blocks) +
                      " buffers, and " + bytes_text(pool.padding) + " of padding");
    entry("idle", "free: " + bytes_text(snapshot_.report.free_bytes()));
    entry("waiting", "freed, last users unfinished: " +
                         bytes_text(pool.waiting - std::min(pinned, pool.waiting)));
    if (pinned != 0) entry("pinned", "freed, under a guard: " + bytes_text(pinned));
    const unsigned bottom = y_;
    y_ = top;
    x_ = left + columns / 2;
    entry("guard", "guarded by graphs: " + bytes_text(pool.guarded));
    entry("ran", "failed while running, perhaps torn: " + bytes_text(marked(ClaimKind::ran)));
    entry("held", "writer never started, as it was: " + bytes_text(marked(ClaimKind::not_started)));
    entry("unwritten", "not written yet: " + bytes_text(marked(ClaimKind::unwritten)));
    y_ = std::max(y_, bottom);
    x_ = left;
  }

  void entry(std::string_view kind, const std::string& text) {
    if (kind == "guard") {
      out_ += "<rect fill=\"url(#guard)\"";
    } else {
      out_ += "<rect class=\"" + std::string(kind) + '"';
    }
    out_ += " x=\"" + std::to_string(x_) + "\" y=\"" + std::to_string(y_) +
            "\" width=\"18\" height=\"12\"/>\n";
    words(x_ + 26, y_ + 11, "", text);
    y_ += row_distance;
  }

  void graphs() {
    y_ += 14;
    std::size_t shown = 0;
    for (const GraphMemory& graph : snapshot_.report.graphs) {
      if (shown++ == most_graphs) {
        words(left, y_, "",
              "and " + std::to_string(snapshot_.report.graphs.size() - most_graphs) +
                  " more graphs");
        y_ += row_distance;
        break;
      }
      words(left, y_, "",
            "graph '" + graph.name + "' guards " + bytes_text(graph.guarded_bytes) + " in " +
                std::to_string(graph.ranges.size()) + " buffers, " +
                bytes_text(graph.shared_bytes) + " of it with other graphs");
      y_ += row_distance;
    }
  }

  // ---- marks on paper

  void words(unsigned x, unsigned y, std::string_view attributes, std::string_view text) {
    out_ += "<text x=\"" + std::to_string(x) + "\" y=\"" + std::to_string(y) + "\" ";
    out_ += attributes;
    out_ += '>' + escaped(text) + "</text>\n";
  }

  void place(std::size_t begin, std::size_t end, unsigned y, unsigned height) {
    out_ += " x=\"" + std::to_string(left + begin) + "\" y=\"" + std::to_string(y) + "\" width=\"" +
            std::to_string(end - begin) + "\" height=\"" + std::to_string(height) + '"';
  }

  void rectangle(std::string_view kind, std::size_t begin, std::size_t end, unsigned y,
                 unsigned height, std::string_view tip) {
    out_ += "<rect class=\"";
    out_ += kind;
    out_ += '"';
    place(begin, end, y, height);
    out_ += tip.empty() ? "/>\n" : "><title>" + escaped(tip) + "</title></rect>\n";
  }

  const MemorySnapshot& snapshot_;
  const std::uint64_t page_;
  std::vector<Row> rows_;
  std::uint64_t left_out_ = 0;
  unsigned x_ = left;
  unsigned y_ = 0;
  std::string out_;
};

}  // namespace

std::string render_svg(const MemorySnapshot& snapshot, std::string_view title) {
  return Drawing(snapshot, title).finish();
}

}  // namespace reprise
