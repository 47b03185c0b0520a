// SPDX-License-Identifier: Apache-2.0
// arithmetic.cpp: computes the expressions with parameters in the layers of a block, by recursive
// descent.
#include "experiments/config/arithmetic.h"

#include <cmath>
#include <variant>

#include "framework/check.h"

namespace convscope::config {
namespace {

constexpr std::size_t kMaxLength = 200;  // also limits the depth of the recursion

using Number = std::variant<std::int64_t, double>;

bool is_digit(char c) { return c >= '0' && c <= '9'; }
bool is_letter(char c) { return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '_'; }

std::string text_of(const Number& number) {
  return std::visit([](auto value) { return to_text(OptionValue(value)); }, number);
}

double real(const Number& number) {
  return std::visit([](auto value) { return static_cast<double>(value); }, number);
}

class Expression {
 public:
  Expression(const Node& node, const ParameterLookup& parameter)
      : text_(node.text), parameter_(parameter) {}

  Number value() {
    const Number out = sum();
    if (at_ < text_.size()) refuse("one of + - * /", rest());
    return out;
  }

 private:
  Number sum() {
    Number out = product();
    for (char op = take("+-"); op != 0; op = take("+-")) out = combined(out, op, product());
    return out;
  }

  Number product() {
    Number out = factor();
    for (char op = take("*/"); op != 0; op = take("*/")) out = combined(out, op, factor());
    return out;
  }

  Number factor() {
    if (take("-") != 0) return combined(std::int64_t{0}, '-', factor());
    if (take("(") != 0) {
      const Number out = sum();
      if (take(")") == 0) refuse("')'", rest());
      return out;
    }
    if (take("$") != 0) {
      const std::string name = word(is_letter, [](char c) { return is_letter(c) || is_digit(c); });
      return number_of(parameter_(name), cat("a number as '$", name, "'"));
    }
    Node literal;
    literal.kind = Node::Kind::scalar;
    const auto is_part = [](char c) { return is_digit(c) || c == '.'; };
    literal.text = word(is_part, is_part);
    if (literal.text.empty()) {
      const std::string hint =
          at_ == 0 ? cat("; write \"", printable(text_), "\" if text is meant") : "";
      refuse("a number, a $parameter or '('", rest() + hint);
    }
    literal.text += exponent();
    return number_of(literal, "a number");
  }

  // Returns e-3 of 1e-3. The sign is part of the number only if digits follow.
  std::string exponent() {
    std::size_t end = at_;
    if (end < text_.size() && (text_[end] == 'e' || text_[end] == 'E')) ++end;
    if (end > at_ && end < text_.size() && (text_[end] == '+' || text_[end] == '-')) ++end;
    if (end == at_ || end == text_.size() || !is_digit(text_[end])) return "";
    while (end < text_.size() && is_digit(text_[end])) ++end;
    const std::string out = text_.substr(at_, end - at_);
    at_ = end;
    return out;
  }

  Number number_of(const Node& node, const std::string& expected) {
    if (node.kind == Node::Kind::scalar) {
      const OptionValue value = typed_scalar(node);
      if (const auto* whole = std::get_if<std::int64_t>(&value)) return *whole;
      if (const auto* fraction = std::get_if<double>(&value)) return *fraction;
    }
    refuse(expected, describe(node));
  }

  Number combined(const Number& a, char op, const Number& b) {
    const std::string got = cat(text_of(a), " ", std::string(1, op), " ", text_of(b));
    const auto *x = std::get_if<std::int64_t>(&a), *y = std::get_if<std::int64_t>(&b);
    if (op == '/' && real(b) == 0) refuse("a divisor other than 0", got);
    if (x == nullptr || y == nullptr) {
      const double out = of_reals(real(a), op, real(b));
      if (!std::isfinite(out)) refuse("a finite result", got);
      return out;
    }
    std::int64_t out = 0;
    if (op == '/') {
      if (*y == -1) return combined(std::int64_t{0}, '-', a);  // the least integer / -1 overflows
      if (*x % *y != 0) {
        refuse("a division without a remainder", cat(got, "; ", got, ".0 is a real number"));
      }
      return *x / *y;
    }
    const bool overflows = op == '+'   ? __builtin_add_overflow(*x, *y, &out)
                           : op == '-' ? __builtin_sub_overflow(*x, *y, &out)
                                       : __builtin_mul_overflow(*x, *y, &out);
    if (overflows) refuse("a result that 64 bits hold", got);
    return out;
  }

  static double of_reals(double a, char op, double b) {
    return op == '+' ? a + b : op == '-' ? a - b : op == '*' ? a * b : a / b;
  }

  void skip_blanks() {
    while (at_ < text_.size() && text_[at_] == ' ') ++at_;
  }

  // Returns the next character if it is one of these, else 0.
  char take(std::string_view characters) {
    skip_blanks();
    if (at_ == text_.size() || characters.find(text_[at_]) == std::string_view::npos) return 0;
    return text_[at_++];
  }

  std::string word(bool (*begins)(char), bool (*continues)(char)) {
    std::size_t end = at_;
    while (end < text_.size() && (end == at_ ? begins : continues)(text_[end])) ++end;
    const std::string out = text_.substr(at_, end - at_);
    at_ = end;
    return out;
  }

  std::string rest() {
    skip_blanks();
    return at_ == text_.size() ? "its end" : cat("'", printable(text_.substr(at_)), "'");
  }

  [[noreturn]] void refuse(const std::string& expected, const std::string& got) const {
    fail(ErrorKind::kConfig, "config",
         cat("expected ", expected, " in '", printable(text_), "', got ", got));
  }

  const std::string& text_;
  const ParameterLookup& parameter_;
  std::size_t at_ = 0;
};

}  // namespace

bool is_expression(const Node& node) {
  return node.kind == Node::Kind::scalar && !node.quoted &&
         node.text.find('$') != std::string::npos;
}

bool is_parameter_name(std::string_view text) {
  if (text.empty() || !is_letter(text[0])) return false;
  for (const char c : text) {
    if (!is_letter(c) && !is_digit(c)) return false;
  }
  return true;
}

Node value_of_expression(const Node& expression, const ParameterLookup& parameter) {
  const std::string_view text = expression.text;
  if (text.starts_with('$') && is_parameter_name(text.substr(1))) {
    return parameter(std::string(text.substr(1)));
  }
  if (text.size() > kMaxLength) {
    fail(ErrorKind::kConfig, "config",
         cat("expected an expression of at most ", kMaxLength, " characters, got ", text.size()));
  }
  Node out = expression;
  out.text = text_of(Expression(expression, parameter).value());
  return out;
}

}  // namespace convscope::config
