// SPDX-License-Identifier: Apache-2.0
// digit_strokes.cpp: the ten digits as pen strokes, several styles each, in a unit square (x to the
// right, y down). synthetic_digits.cpp distorts and draws them.
#include "datasets/digit_strokes.h"

#include <array>

namespace convscope {
namespace {

using enum PenStroke::Form;

using Digits = std::array<std::vector<DigitStyle>, 10>;

const PenStroke kWideRing{loop,
                          {{.50, .10},
                           {.33, .17},
                           {.25, .38},
                           {.25, .62},
                           {.33, .83},
                           {.50, .90},
                           {.67, .83},
                           {.75, .62},
                           {.75, .38},
                           {.67, .17}}};
const PenStroke kNarrowRing{loop,
                            {{.50, .10},
                             {.38, .25},
                             {.34, .50},
                             {.38, .75},
                             {.50, .90},
                             {.62, .75},
                             {.66, .50},
                             {.62, .25}}};
const PenStroke kUpperRing{loop,
                           {{.50, .10},
                            {.36, .16},
                            {.31, .30},
                            {.37, .43},
                            {.50, .48},
                            {.63, .43},
                            {.69, .30},
                            {.64, .16}}};
const PenStroke kLowerRing{loop,
                           {{.50, .48},
                            {.34, .55},
                            {.27, .69},
                            {.33, .84},
                            {.50, .90},
                            {.67, .84},
                            {.73, .69},
                            {.66, .55}}};

const Digits& digits() {
  static const Digits table = {{
      // 0: wide, narrow, with a slash
      {{kWideRing}, {kNarrowRing}, {kWideRing, {corners, {{.68, .20}, {.32, .80}}}}},
      // 1: a bar, a bar with a flag, a bar with a flag and a foot
      {{{corners, {{.50, .10}, {.50, .90}}}},
       {{corners, {{.33, .28}, {.53, .10}, {.53, .90}}}},
       {{corners, {{.34, .26}, {.51, .10}, {.51, .90}}}, {corners, {{.32, .90}, {.70, .90}}}}},
      // 2: with a corner at the foot, with a small loop at the foot
      {{{curve,
         {{.26, .30}, {.33, .15}, {.52, .10}, {.71, .21}, {.70, .40}, {.52, .62}, {.25, .89}}},
        {corners, {{.25, .89}, {.77, .89}}}},
       {{curve,
         {{.27, .26},
          {.40, .11},
          {.64, .13},
          {.71, .32},
          {.58, .56},
          {.36, .82},
          {.25, .87},
          {.26, .77},
          {.42, .78},
          {.60, .88},
          {.78, .84}}}}},
      // 3: round, with a flat top
      {{{curve,
         {{.27, .20},
          {.45, .10},
          {.67, .18},
          {.67, .36},
          {.46, .47},
          {.70, .57},
          {.73, .76},
          {.52, .90},
          {.25, .81}}}},
       {{corners, {{.28, .12}, {.70, .12}, {.46, .43}}},
        {curve, {{.46, .43}, {.68, .51}, {.74, .70}, {.55, .89}, {.25, .82}}}}},
      // 4: open, closed, open and round
      {{{corners, {{.36, .10}, {.25, .56}, {.77, .56}}}, {corners, {{.62, .30}, {.60, .90}}}},
       {{corners, {{.62, .90}, {.62, .10}, {.22, .63}, {.79, .63}}}},
       {{curve, {{.28, .12}, {.27, .38}, {.38, .52}, {.66, .47}}},
        {corners, {{.70, .10}, {.66, .90}}}}},
      // 5: with corners, in one curve
      {{{corners, {{.72, .12}, {.34, .12}, {.30, .45}}},
        {curve, {{.30, .45}, {.50, .39}, {.71, .50}, {.73, .72}, {.52, .90}, {.26, .82}}}},
       {{curve,
         {{.71, .13}, {.42, .14}, {.33, .38}, {.56, .44}, {.72, .62}, {.58, .87}, {.27, .85}}}}},
      // 6: bent, with a straight back
      {{{curve,
         {{.66, .11},
          {.42, .28},
          {.28, .58},
          {.34, .83},
          {.54, .90},
          {.71, .76},
          {.64, .57},
          {.45, .55},
          {.30, .69}}}},
       {{corners, {{.54, .10}, {.32, .56}}},
        {curve,
         {{.32, .56}, {.29, .74}, {.42, .89}, {.62, .86}, {.71, .69}, {.58, .55}, {.32, .62}}}}},
      // 7: plain, with a bar, with a bent stem
      {{{corners, {{.25, .12}, {.75, .12}, {.42, .90}}}},
       {{corners, {{.25, .12}, {.75, .12}, {.44, .90}}}, {corners, {{.36, .50}, {.70, .50}}}},
       {{corners, {{.25, .20}, {.27, .12}, {.75, .13}}},
        {curve, {{.75, .13}, {.58, .38}, {.49, .62}, {.46, .90}}}}},
      // 8: two rings, one line that crosses itself
      {{kUpperRing, kLowerRing},
       {{loop,
         {{.50, .47},
          {.33, .34},
          {.34, .17},
          {.50, .10},
          {.66, .17},
          {.67, .34},
          {.50, .47},
          {.29, .64},
          {.31, .83},
          {.50, .90},
          {.69, .83},
          {.71, .64}}}}},
      // 9: with a straight tail, with a bent tail
      {{kUpperRing, {corners, {{.69, .28}, {.66, .90}}}},
       {kUpperRing, {curve, {{.69, .26}, {.71, .52}, {.64, .78}, {.46, .90}, {.30, .84}}}}},
  }};
  return table;
}

}  // namespace

const std::vector<DigitStyle>& digit_styles(int digit) {
  return digits()[static_cast<std::size_t>(digit)];
}

}  // namespace convscope
