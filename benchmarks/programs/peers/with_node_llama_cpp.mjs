// A task done with node-llama-cpp: one context with as many sequences as the task has parallel conversations.
// Run in the folder in which node-llama-cpp is installed; times are seconds, as in task.py.

import {readFileSync} from "node:fs";
import {createRequire} from "node:module";
import {pathToFileURL} from "node:url";
import {join} from "node:path";

const task = JSON.parse(readFileSync(0, "utf8"));
const now = () => performance.now() / 1000;
const figures = {};

function finish(printed) {
    process.stdout.write(JSON.stringify(printed) + "\n", () => process.exit(0));
}

const unsupported = task.binding ? "its primitives are not those of the other systems"
    : task.branches?.length ? "a sequence cannot be branched"
    : task.resume ? "its saved state does not carry the session"
    : null;
if (unsupported) {
    finish({unsupported});
} else {
    const importing = now();
    const library = createRequire(join(process.cwd(), "package.json")).resolve("node-llama-cpp");
    const {getLlama, LlamaChatSession} = await import(pathToFileURL(library).href);
    figures.import = now() - importing;

    const loading = now();
    const llama = await getLlama({gpu: false, build: "never", skipDownload: true, progressLogs: false, logLevel: "error",
        maxThreads: task.threads});
    const model = await llama.loadModel({modelPath: task.model});
    const parallel = Math.max(1, task.parallel);
    const context = await model.createContext({sequences: parallel, contextSize: Math.floor(task.n_ctx / parallel),
        threads: task.threads, flashAttention: true});
    figures.load = now() - loading;

    const grammar = task.schema ? await llama.createGrammarForJsonSchema(task.schema) : undefined;
    const {temperature, top_k: topK, top_p: topP, min_p: minP, seed} = task.sampling;
    const sampling = {temperature, topK, topP, minP, seed, repeatPenalty: false};

    const say = async (session, text, maxTokens, piece, constrained) => {
        let tokens = 0;
        const found = await session.promptWithMeta(text, {...sampling, maxTokens, trimWhitespaceSuffix: false,
            grammar: constrained ? grammar : undefined,
            onToken: (ids) => { tokens += ids.length; piece(); }});
        return [tokens, found.stopReason === "maxTokens" ? "length" : "stop"];
    };

    const warm = context.getSequence();
    await say(new LlamaChatSession({contextSequence: warm}), "Hello", 8, () => {}, false);
    await warm.dispose();

    const specs = task.conversations;
    if (specs.length > parallel) {
        finish({unsupported: "it has no more conversations than sequences"});
    } else {
        // Its default system prompt would be one that the others do not have.
        const sessions = specs.map((spec) => new LlamaChatSession({contextSequence: context.getSequence(),
            systemPrompt: spec.system ?? "", ...(spec.system ? {} : {forceAddSystemPrompt: false})}));
        const replies = [];
        const zero = now();
        const turn = async (i, k, signal) => {
            const times = [];
            const asked = now() - zero;
            const [tokens, finished] = await say(sessions[i], specs[i].turns[k], specs[i].max_tokens ?? task.max_tokens,
                () => { times.push(now() - zero); if (signal && times.length === signal.pieces) signal.begin(); },
                k > 0 && task.schema);
            replies.push({conversation: i, turn: k, asked, times, tokens, finish: finished});
        };
        if (task.order === "in turn") {
            for (let k = 0; k < Math.max(...specs.map((spec) => spec.turns.length)); k++)
                for (let i = 0; i < specs.length; i++)
                    if (k < specs[i].turns.length) await turn(i, k);
        } else {
            const pieces = Math.max(...specs.map((spec) => spec.after_tokens ?? 0));
            let begin = () => {};
            const late = new Promise((resolve) => { begin = resolve; });
            await Promise.all(specs.map(async (spec, i) => {
                if (spec.after_tokens) await late;
                for (let k = 0; k < spec.turns.length; k++) await turn(i, k, i === 0 && pieces ? {pieces, begin} : undefined);
            }));
        }
        figures.replies = replies.sort((a, b) => a.conversation - b.conversation || a.turn - b.turn);
        figures.resident = process.memoryUsage().rss;
        const require = createRequire(join(process.cwd(), "package.json"));
        const folder = library.slice(0, library.lastIndexOf("/dist/"));
        figures.about = {version: JSON.parse(readFileSync(join(folder, "package.json"), "utf8")).version,
            llama_version: llama.llamaCppRelease.release};
        finish(figures);
    }
}
