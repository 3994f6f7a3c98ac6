// What functions of the Jinja engine would use, and what they must not be given: see template_limits.h.

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <map>
#include <stdexcept>
#include <string>
#include <string_view>
#include <vector>

#include "template_limits.h"

namespace {

using namespace jinja;
using causerie::text_bytes;
using causerie::times;

constexpr int64_t most_index = int64_t{1} << 53;
constexpr int64_t value_bytes = 256;  // of a value, about
constexpr std::string_view test_prefix = "test_is_";  // the engine's tests are functions too

int64_t int_of(const value & v, int64_t otherwise = 0) { return is_val<value_int>(v) ? v->as_int() : otherwise; }

std::string text_of(const value & v) { return is_val<value_string>(v) ? v->as_string().str() : ""; }

std::vector<value> list_of(const value & v) { return is_val<value_array>(v) ? v->as_array() : std::vector<value>(); }

int64_t occurrences(const std::string & text, const std::string & part) {
    int64_t count = 0;
    for (size_t at = 0; !part.empty() && (at = text.find(part, at)) != std::string::npos; at += part.size()) {
        ++count;
    }
    return count;
}

void check_items(const func_args & args) { causerie::spend_bytes(times(causerie::items_of(args.get_pos(0)), value_bytes)); }

void check_range(const func_args & args) {
    const size_t n = args.count();
    for (size_t i = 0; i < n; ++i) {
        causerie::check_index(args.get_pos(i));
    }
    const int64_t start = n > 1 ? int_of(args.get_pos(0)) : 0;
    const int64_t stop = int_of(args.get_pos(n > 1 ? 1 : 0));
    const int64_t step = n > 2 ? int_of(args.get_pos(2)) : 1;
    if (step != 0) {
        causerie::spend_bytes(times(std::max<int64_t>(0, (stop - start) / step), value_bytes));
    }
}

// The engine moves the rest of the text each time it finds something.
void check_finds(const func_args & args, int64_t bytes_of_each) {
    const auto size = static_cast<int64_t>(text_of(args.get_pos(0)).size());
    const std::string part = args.count() > 1 ? text_of(args.get_pos(1)) : " ";
    const int64_t found = part.empty() ? size + 1 : occurrences(text_of(args.get_pos(0)), part);
    causerie::spend_bytes(times(found, bytes_of_each));
    causerie::spend_bytes(part.empty() ? 0 : times(found, size) / 256);
}

void check_replace(const func_args & args) {
    check_finds(args, args.count() > 2 ? static_cast<int64_t>(text_of(args.get_pos(2)).size()) : 0);
}

void check_split(const func_args & args) { check_finds(args, value_bytes); }

// The engine erases the blank parts of a text one by one, and looks for each character among those to strip.
void check_strip(const func_args & args) {
    const auto & parts = args.get_pos(0)->val_str.parts;
    const std::string chars = text_of(args.get_kwarg_or_pos("chars", 1));
    const std::string stripped = chars.empty() ? " \t\n\v\f\r" : chars;
    const auto blank = std::count_if(parts.begin(), parts.end(), [&](const string_part & part) {
        return part.val.find_first_not_of(stripped) == std::string::npos;
    });
    causerie::spend_bytes(times(blank, static_cast<int64_t>(parts.size())) / 4);
    causerie::spend_bytes(times(causerie::text_bytes(args.get_pos(0)), static_cast<int64_t>(chars.size())) / 64);
}

void check_indent(const func_args & args) {
    const value width = args.get_kwarg_or_pos("width", 1);
    const int64_t blank = is_val<value_string>(width) ? causerie::text_bytes(width) : std::max<int64_t>(0, int_of(width, 4));
    causerie::spend_bytes(times(2 + occurrences(text_of(args.get_pos(0)), "\n"), blank));
}

void check_join(const func_args & args) {
    causerie::spend_whole(args.get_kwarg_or_pos("d", 1), causerie::items_of(args.get_pos(0)));
}

void check_json(const func_args & args) {
    const causerie::Extent extent = causerie::extent_of(args.get_pos(0));
    const int64_t indent = std::clamp<int64_t>(int_of(args.get_kwarg_or_pos("indent", 2)), 0, INT32_MAX);
    const int64_t around = times(extent.levels + 2, indent) + causerie::extent_of(args.get_kwarg_or_pos("separators", 3)).bytes;
    causerie::spend_bytes(times(extent.items, around));
}

void check_slice(const func_args & args) {
    for (size_t i = 1; i < args.count(); ++i) {
        causerie::check_index(args.get_pos(i));
    }
}

void check_select(const func_args & args) {
    check_items(args);
    const size_t n = args.count();
    if (n > 2) {  // with the name of a test, and its argument
        causerie::spend_whole(args.get_pos(0));
        for (const value & item : list_of(args.get_pos(0))) {
            causerie::check_test(text_of(args.get_pos(n - 2)), item, args.get_pos(n - 1));
        }
    }
}

// std::sort leaves its list where a comparison gives no order, as the engine's does for mixed values.
void check_order(const std::vector<value> & items) {
    bool numbers = false;
    bool texts = false;
    bool others = false;
    for (const value & item : items) {
        const bool is_number = (is_val<value_int>(item) || is_val<value_float>(item)) && !std::isnan(item->as_float());
        (is_number ? numbers : is_val<value_string>(item) ? texts : others) = true;
    }
    if (numbers + texts + others > 1) {
        throw std::runtime_error("numbers, texts and other values cannot be sorted in one list");
    }
}

value attribute_of(const value & item, const value & attribute) {
    value none = mk_val<value_undefined>();
    if (is_val<value_object>(item)) {
        return item->at(attribute, none);
    }
    const std::string digits = text_of(attribute);
    const bool is_index = !digits.empty() && digits.size() < 10 && digits.find_first_not_of("0123456789") == std::string::npos;
    const value index = is_index ? mk_val<value_int>(std::stoll(digits)) : attribute;
    return is_val<value_array>(item) ? item->at(index, none) : none;
}

void check_sort(const func_args & args) {
    const value attribute = args.get_kwarg_or_pos("attribute", 3);
    std::vector<value> items = list_of(args.get_pos(0));
    if (!attribute->is_undefined()) {
        std::transform(
            items.begin(), items.end(), items.begin(), [&](const value & item) { return attribute_of(item, attribute); });
    }
    check_order(items);
    causerie::spend_whole(args.get_pos(0), 32);
}

void check_dictsort(const func_args & args) {
    const bool by_value = text_of(args.get_kwarg_or_pos("by", 2)) == "value";
    std::vector<value> items;
    if (is_val<value_object>(args.get_pos(0))) {
        for (const auto & [key, item] : args.get_pos(0)->as_ordered_object()) {
            items.push_back(by_value ? item : key);
        }
    }
    check_order(items);
    causerie::spend_whole(args.get_pos(0), 32);
}

void check_append(const func_args & args) {
    if (args.count() > 1) {
        causerie::spend_nesting(args.get_pos(1));
    }
}

void check_namespace(const func_args & args) {
    for (const value & arg : args.get_args()) {
        causerie::spend_nesting(arg);
    }
}

void nothing(const func_args &) {}

using Check = void (*)(const func_args &);
using Checks = std::map<std::string, Check>;

// Of functions that do not read all that is in a value.
const Checks & light_functions() {
    static const Checks known = {
        {"append", check_append}, {"count", nothing}, {"d", nothing}, {"default", nothing}, {"first", nothing}, {"get", nothing},
        {"last", nothing}, {"length", nothing}, {"items", check_items}, {"keys", check_items}, {"list", check_items},
        {"map", check_items}, {"pop", check_items}, {"reverse", check_items}, {"values", check_items},
        {"reject", check_select}, {"rejectattr", check_select}, {"select", check_select}, {"selectattr", check_select},
    };
    return known;
}

// Of functions that do more than to read it once.
const Checks & heavy_functions() {
    static const Checks known = {
        {"dict", check_namespace}, {"dictsort", check_dictsort}, {"indent", check_indent}, {"join", check_join}, {"lstrip", check_strip},
        {"namespace", check_namespace}, {"range", check_range}, {"replace", check_replace}, {"rsplit", check_split}, {"rstrip", check_strip},
        {"slice", check_slice}, {"sort", check_sort}, {"split", check_split}, {"strip", check_strip},
        {"tojson", check_json}, {"trim", check_strip},
    };
    return known;
}

}  // namespace

namespace causerie {

void check_call(const std::string & name, const func_args & args) {
    for (size_t i = 1; i < args.count(); ++i) {
        spend_whole(args.get_pos(i));
    }
    if (args.count() == 0) {
        return;
    }
    if (name.rfind(test_prefix, 0) == 0 && args.count() > 1) {
        check_test(name.substr(test_prefix.size()), args.get_pos(0), args.get_pos(1));
    }
    if (const auto light = light_functions().find(name); light != light_functions().end()) {
        light->second(args);
        return;
    }
    spend_whole(args.get_pos(0));
    if (const auto heavy = heavy_functions().find(name); heavy != heavy_functions().end()) {
        heavy->second(args);
    }
}

void check_test(const std::string & name, const value & given, const value & argument) {
    spend_whole(argument);
    if (name == "in" && is_val<value_array>(argument)) {  // compares with each item
        spend_whole(given, items_of(argument));
    } else if (name == "divisibleby") {
        const int64_t by = int_of(argument, 1);
        if (by == 0 || by == -1) {  // the processor stops there
            throw std::runtime_error("divisibleby takes a number other than 0 and -1");
        }
    }
}

void check_index(const value & v) {
    const int64_t index = int_of(v);
    if (index > most_index || index < -most_index) {
        throw std::runtime_error("a number is too large for an index");
    }
}

}  // namespace causerie
