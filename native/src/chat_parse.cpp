// Replies as messages: llama.cpp's parsers, which it makes for each prompt from the template's format of a reply.

#include <algorithm>
#include <cstddef>
#include <memory>
#include <stdexcept>
#include <string>

#include "causerie.h"
#include "chat.h"
#include "copy_out.h"
#include "guard.h"
#include "json.h"
#include "large_stack.h"

struct causerie_parser {
    common_chat_parser_params params;
};

namespace {

common_chat_format format_named(const std::string & name) {
    for (int i = 0; i < COMMON_CHAT_FORMAT_COUNT; i++) {
        const auto format = static_cast<common_chat_format>(i);
        if (name == common_chat_format_name(format)) {
            return format;
        }
    }
    throw std::invalid_argument("unknown format of replies: " + name);
}

common_json write_message(const common_chat_msg & message) {
    common_json calls = common_json::array();
    for (const auto & call : message.tool_calls) {
        common_json entry = common_json::object();
        entry["id"] = call.id;
        entry["name"] = call.name;
        entry["arguments"] = call.arguments;
        calls.push_back(entry);
    }
    common_json out = common_json::object();
    out["content"] = message.content;
    out["reasoning_content"] = message.reasoning_content;
    out["tool_calls"] = calls;
    return out;
}

// llama.cpp's parser recurses into each bracket; the large stack suffices for twice as many.
constexpr ptrdiff_t max_brackets = 40000;

void check_depth(const std::string & text) {
    if (std::count_if(text.begin(), text.end(), [](char c) { return c == '[' || c == '{'; }) > max_brackets) {
        throw std::invalid_argument("the reply has more than 40000 opening brackets");
    }
}

}  // namespace

causerie_parser * causerie_parser_new(const char * params_json) {
    return causerie_guarded<causerie_parser *>(
        __func__,
        [&] {
            auto result = std::make_unique<causerie_parser>();
            causerie::on_large_stack([&] {
                const auto json = common_json::parse(params_json);
                result->params.format = format_named(json.at("format").get<std::string>());
                result->params.generation_prompt = json.at("generation_prompt").get<std::string>();
                const auto parser = json.at("parser").get<std::string>();
                if (!parser.empty()) {
                    result->params.parser.load(parser);
                }
            });
            return result.release();
        },
        nullptr);
}

void causerie_parser_free(causerie_parser * parser) {
    causerie_guarded_void(__func__, [&] { delete parser; });
}

char * causerie_parser_parse(const causerie_parser * parser, const char * text, size_t size, bool is_partial) {
    return causerie_guarded<char *>(
        __func__,
        [&] {
            char * out = nullptr;
            causerie::on_large_stack([&] {
                const std::string reply(text, size);
                check_depth(reply);
                const auto message = common_chat_parse(reply, is_partial, parser->params);
                out = causerie::copy_out(write_message(message).dump_safe());
            });
            return out;
        },
        nullptr);
}
