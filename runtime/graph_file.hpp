// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <reprise/device/kernel.hpp>
#include <reprise/capture/graph_spec.hpp>

#include <span>
#include <string>
#include <string_view>

namespace reprise {

/// What a file says of a graph.
struct GraphFile {
  std::string name;
  GraphSpec spec;
};

/// The portable part of a graph by hand as JSON text: buffers with their sizes, kernel, copy, fill
/// and empty nodes with what they touch, kernels by name with their signatures and the values that
/// they are given, and the order. docs/GRAPH_FILE.md has the format. No memory goes along: what is
/// a buffer here is a placeholder to whoever loads the text.
///
/// Errc::unsupported   a host, child or conditional node: functions and graphs have no text
std::string save_graph(const GraphSpec& spec, std::string_view name = {});

/// Reads what save_graph() wrote, and trusts none of it. `kernels` are those that nodes may name,
/// each name once. Time and memory are in proportion to the text.
///
/// Errc::bad_format       no such text: the message says where and what; a version that is not
///                        known; a field that is missing, of another type or out of bounds
/// Errc::no_such_kernel   a name that `kernels` lacks
/// Errc::size_mismatch    a kernel of that name with another signature
/// and what GraphSpec::add_node() says of nodes that cannot be.
GraphFile load_graph(std::string_view text, std::span<const KernelRef> kernels);

}  // namespace reprise
