// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <ostream>
#include <string_view>

namespace reprise::detail {

/// Writes `text` as a quoted string of the DOT language.
inline void put_quoted(std::ostream& out, std::string_view text) {
  out << '"';
  for (const char c : text) {
    if (c == '"' || c == '\\') out << '\\';
    if (c == '\n') {
      out << "\\n";
    } else {
      out << c;
    }
  }
  out << '"';
}

}  // namespace reprise::detail
