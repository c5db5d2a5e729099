// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <reprise/device/kernel.hpp>

#include <atomic>
#include <cstdint>
#include <stdexcept>
#include <string>

/// Small kernels that several tests launch.
namespace reprise::test {

/// out = in + 1
inline const Kernel add_one{"add_one", [](Block block, In<float> in, Out<float> out) {
                              for (std::size_t i : block.range(in.size())) out[i] = in[i] + 1;
                            }};

/// out = in * 2
inline const Kernel mul_two{"mul_two", [](Block block, In<float> in, Out<float> out) {
                              for (std::size_t i : block.range(in.size())) out[i] = in[i] * 2;
                            }};

/// x = x + amount, in place
inline const Kernel add_in_place{"add_in_place", [](Block block, InOut<float> x, float amount) {
                                   for (std::size_t i : block.range(x.size())) x[i] += amount;
                                 }};

/// out = a + b
inline const Kernel add{"add", [](Block block, In<float> a, In<float> b, Out<float> out) {
                          for (std::size_t i : block.range(out.size())) out[i] = a[i] + b[i];
                        }};

/// Writes one element, needs nothing written and clears nothing.
inline const Kernel poke{"poke", [](Block, Update<float> x, std::uint32_t at, float value) {
                           if (at < x.size()) x[at] = value;
                         }};

/// Reads `in`, then throws what it is told to.
inline const Kernel fail{"fail",
                         [](Block, In<float>, Out<float>) { throw std::runtime_error("boom"); }};

/// Throws while *flag is not 0, else out = in + 1.
inline const Kernel fail_if{"fail_if",
                            [](Block block, In<std::int32_t> flag, In<float> in, Out<float> out) {
                              if (flag[0] != 0) throw std::runtime_error("asked to fail");
                              for (std::size_t i : block.range(in.size())) out[i] = in[i] + 1;
                            }};

}  // namespace reprise::test
