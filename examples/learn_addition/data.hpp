// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <vector>

namespace learn_addition {

/// Two numbers below 100 in one value: a * 100 + b.
using Sum = std::uint32_t;

inline constexpr std::size_t all_sums = 100 * 100;
inline constexpr std::size_t question_digits = 4;  ///< Two for each number.
inline constexpr std::size_t answer_digits = 3;    ///< Up to 198.
inline constexpr std::size_t digit_values = 10;
/// A question is one-hot: for each of its digits, one element in ten is 1.
inline constexpr std::size_t question_size = question_digits * digit_values;
/// An answer is ten scores for each of its digits.
inline constexpr std::size_t answer_size = answer_digits * digit_values;

/// The digits of both numbers, most significant first.
constexpr std::array<std::uint32_t, question_digits> digits_of_question(Sum sum) noexcept {
  return {sum / 1000, sum / 100 % 10, sum / 10 % 10, sum % 10};
}

/// a + b.
constexpr std::uint32_t result_of(Sum sum) noexcept {
  return sum / 100 + sum % 100;
}

/// The digits of a + b, most significant first.
constexpr std::array<std::uint32_t, answer_digits> digits_of_answer(Sum sum) noexcept {
  const std::uint32_t result = result_of(sum);
  return {result / 100, result / 10 % 10, result % 10};
}

/// All sums of two numbers below 100, each in one of two parts.
struct Split {
  std::vector<Sum> train;
  std::vector<Sum> unseen;
};

/// Shuffles all sums and keeps `unseen_count` of them from training. The seed alone decides.
/// `unseen_count` is at most all_sums.
Split split_sums(std::uint64_t seed, std::size_t unseen_count);

/// One step of splitmix64: spreads any number over all 64 bits.
constexpr std::uint64_t mix(std::uint64_t value) noexcept {
  value += 0x9e3779b97f4a7c15;
  value = (value ^ (value >> 30)) * 0xbf58476d1ce4e5b9;
  value = (value ^ (value >> 27)) * 0x94d049bb133111eb;
  return value ^ (value >> 31);
}

}  // namespace learn_addition
