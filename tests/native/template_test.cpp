// The shim's chat templates beside llama.cpp's own: the same prompts, parsers and grammars, also once something is
// remembered of a template, and the same values for each thing that a template can say.

#include "template_test.h"

#include <cstdio>
#include <cstdlib>
#include <exception>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <string>
#include <vector>

#include "causerie.h"
#include "chat.h"
#include "json.h"
#include "template_sayings.h"

namespace {

const std::string refused = "(refused)";

common_json call(const char * id, const char * city) {
    return {{"id", id},
            {"type", "function"},
            {"function", {{"name", "weather"}, {"arguments", std::string(R"({"city": ")") + city + R"("})"}}}};
}

common_json said(const char * role, const char * content) { return {{"role", role}, {"content", content}}; }

common_json of_tool(const char * id, const char * content) {
    common_json message = said("tool", content);
    message["tool_call_id"] = id;
    message["name"] = "weather";
    return message;
}

common_json calling(std::vector<common_json> calls, const char * content = "", const char * thinking = "") {
    common_json message = said("assistant", content);
    message["reasoning_content"] = thinking;
    message["tool_calls"] = common_json::array();
    for (auto & one : calls) {
        message["tool_calls"].push_back(one);
    }
    return message;
}

common_json list(std::vector<common_json> messages) {
    common_json all = common_json::array();
    for (auto & message : messages) {
        all.push_back(message);
    }
    return all;
}

// With several calls in a turn, answered in any order, and thinking throughout.
common_json long_history(bool waits_for_answer) {
    std::vector<common_json> all = {said("system", "Be brief.")};
    for (int i = 0; i < 8; ++i) {
        const std::string first = "call0" + std::to_string(1000 + 2 * i);
        const std::string second = "call0" + std::to_string(1001 + 2 * i);
        auto thought = said("assistant", "It is as it was before.\n");
        thought["reasoning_content"] = i % 2 == 0 ? "Hm, \"is\" it?" : "";
        all.push_back(said("user", "And <what> about this one, then?"));
        all.push_back(calling({call(first.c_str(), "Oslo"), call(second.c_str(), "Rome & Paris")}, i % 3 == 0 ? "Let me see." : "", "Two."));
        all.push_back(of_tool((i % 4 == 0 ? second : first).c_str(), "5 C"));
        all.push_back(of_tool((i % 4 == 0 ? first : second).c_str(), R"({"c": 20, "sky": ["blue", null]})"));
        all.push_back(thought);
        all.push_back(said("user", "So?"));
        all.push_back(calling({call(first.c_str(), "Oslo")}));
        all.push_back(of_tool(first.c_str(), "noted"));
        if (i < 7 || !waits_for_answer) {
            all.push_back(said("assistant", "So."));
        }
    }
    if (!waits_for_answer) {
        all.push_back(said("user", "?"));
    }
    return list(all);
}

std::vector<common_json> histories() {
    const auto asked = said("user", "Is it <warm> in Oslo?\n\n");
    auto thought = said("assistant", "So it is.");
    thought["reasoning_content"] = "Hm, is it?";
    const auto first = call("call00001", "Oslo");
    const auto second = call("call00002", "Rome");
    return {
        list({asked}),
        list({said("system", " Be brief. "), asked}),
        list({asked, thought, said("user", "And now?")}),
        list({said("system", "Be brief."), asked, calling({first}), of_tool("call00001", "5 C")}),
        list({asked, calling({first, second}, "Let me see.", "Two places."), of_tool("call00001", "5 C"),
              of_tool("call00002", R"({"c": 20})"), said("assistant", "Rome is."), said("user", "Thanks.")}),
        list({asked, said("assistant", "Yes."), said("user", "Why?"), said("assistant", "It is summer."), said("user", "Ah.")}),
        list({asked, said("assistant", "Yes.")}),
        long_history(false),
        long_history(true),
    };
}

// All options, as texts, in which the messages of a history are put.
std::vector<common_json> options() {
    const common_json tools = list({{{"type", "function"},
                                     {"function",
                                      {{"name", "weather"},
                                       {"description", "Tells the weather"},
                                       {"parameters",
                                        {{"type", "object"},
                                         {"properties", {{"city", {{"type", "string"}}}}},
                                         {"required", common_json::array({"city"})}}}}}}});
    return {
        {{"reasoning_format", "auto"}},
        {{"tools", tools}, {"reasoning_format", "auto"}},
        {{"tools", tools}, {"tool_choice", "required"}, {"parallel_tool_calls", true}, {"reasoning_format", "auto"}},
        {{"reasoning_format", "auto"}, {"enable_thinking", false}},
        {{"reasoning_format", "auto"}, {"add_generation_prompt", false}},
    };
}

common_chat_templates_inputs read(const common_json & json) {
    common_chat_templates_inputs inputs;
    inputs.messages = common_chat_msgs_parse_oaicompat(json.at("messages"));
    if (json.contains("tools")) {
        inputs.tools = common_chat_tools_parse_oaicompat(json.at("tools"));
    }
    inputs.tool_choice = common_chat_tool_choice_parse_oaicompat(json.value("tool_choice", "auto"));
    inputs.parallel_tool_calls = json.value("parallel_tool_calls", false);
    inputs.add_generation_prompt = json.value("add_generation_prompt", true);
    inputs.enable_thinking = json.value("enable_thinking", true);
    inputs.reasoning_format = common_reasoning_format_from_name(json.value("reasoning_format", "none"));
    return inputs;
}

std::string of_llama_cpp(const common_chat_templates * templates, const common_json & json) {
    try {
        const auto params = common_chat_templates_apply(templates, read(json));
        return params.prompt + "\1" + params.generation_prompt + "\1" + params.parser + "\1" + params.grammar;
    } catch (const std::exception &) {
        return refused;
    }
}

std::string of_shim(const causerie_template * tmpl, const common_json & json) {
    char * text = causerie_template_apply(tmpl, json.dump().c_str());
    if (text == nullptr) {
        return refused;
    }
    const auto found = common_json::parse(text);
    causerie_string_free(text);
    const auto field = [&](const char * name) { return found.at(name).get<std::string>(); };
    return field("prompt") + "\1" + field("generation_prompt") + "\1" + field("parser") + "\1" + field("grammar");
}

std::string capabilities_by_llama_cpp(const common_chat_templates * templates) {
    try {
        common_json caps = common_json::object();
        for (const auto & [name, value] : common_chat_templates_get_caps(templates)) {
            caps[name] = value;
        }
        caps["supports_thinking"] = common_chat_templates_support_enable_thinking(templates);
        return caps.dump();
    } catch (const std::exception &) {
        return refused;
    }
}

std::string capabilities_by_shim(const causerie_template * tmpl) {
    char * text = causerie_template_caps(tmpl);
    if (text == nullptr) {
        return refused;
    }
    std::string caps = text;
    causerie_string_free(text);
    return caps;
}

void expect_same(const std::string & name, const common_json & json, const std::string & a, const std::string & b) {
    if (a != b) {
        std::fprintf(stderr, "%s with %s\n--- llama.cpp\n%s\n--- causerie\n%s\n", name.c_str(), json.dump().c_str(), a.c_str(), b.c_str());
        std::exit(1);
    }
}

int compare(const std::string & name, const std::string & source, const std::vector<common_json> & all, const std::vector<common_json> & ways) {
    common_chat_templates_ptr plain;
    try {
        plain = common_chat_templates_init(nullptr, source, "<s>", "</s>");
    } catch (const std::exception &) {
    }
    causerie_template * own = causerie_template_new(source.c_str(), "<s>", "</s>");
    expect_same(name, {}, plain == nullptr ? refused : capabilities_by_llama_cpp(plain.get()),
                own == nullptr ? refused : capabilities_by_shim(own));
    int compared = 0;
    for (auto option : ways) {
        std::vector<std::string> expected;
        for (const auto & history : all) {
            option["messages"] = history;
            expected.push_back(plain == nullptr ? refused : of_llama_cpp(plain.get(), option));
        }
        for (size_t i = 0; i < all.size(); ++i) {  // behind the first, something is remembered
            option["messages"] = all[i];
            expect_same(name, option, expected[i], own == nullptr ? refused : of_shim(own, option));
            ++compared;
        }
    }
    causerie_template_free(own);
    return compared;
}

std::string content_of(const std::filesystem::path & path) {
    std::ifstream file(path, std::ios::binary);
    return std::string(std::istreambuf_iterator<char>(file), {});
}

}  // namespace

int templates_are_llama_cpps(const char * folder, bool thoroughly) {
    const auto ways = thoroughly ? options() : std::vector<common_json>{options()[1]};
    const auto few = std::vector<common_json>{histories()[2], histories()[4]};
    const auto all = thoroughly ? histories() : std::vector<common_json>{histories()[2], histories()[4], long_history(false)};
    int compared = 0;
    for (const auto & saying : sayings()) {
        compared += compare(saying, saying, few, {options()[0]});
    }
    for (unsigned seed = 0; seed < (thoroughly ? 1000U : 40U); ++seed) {
        const std::string source = random_template(seed);
        compared += compare(source, source, few, {options()[0]});
    }
    for (const auto & entry : std::filesystem::directory_iterator(folder)) {
        if (entry.path().extension() == ".jinja") {
            compared += compare(entry.path().filename().string(), content_of(entry.path()), all, ways);
        }
    }
    return compared;
}
