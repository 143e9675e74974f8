// SPDX-License-Identifier: MIT
// What llama.cpp (npm: node-llama-cpp) makes of a GGUF file: the ids of a prompt, and token for
// token the greedy continuation with the probabilities of every next token.
//
//   llama.mjs MODEL.gguf PROMPT.txt COUNT OUT.json
//
// The package is found in $LLAMA, the folder npm installed into.
import fs from "node:fs";
import path from "node:path";
import { pathToFileURL } from "node:url";

const entry = path.join(path.resolve(process.env.LLAMA), "node_modules/node-llama-cpp/dist/index.js");
const { getLlama, LlamaLogLevel } = await import(pathToFileURL(entry).href);

const [modelPath, promptPath, count, outPath] = process.argv.slice(2);
const llama = await getLlama({
  gpu: false, build: "never", skipDownload: true, progressLogs: false, maxThreads: 2, logLevel: LlamaLogLevel.error,
});
const model = await llama.loadModel({ modelPath });
const prompt = Array.from(model.tokenize(fs.readFileSync(promptPath, "utf8")));
const context = await model.createContext({ contextSize: model.trainContextSize, threads: 2 });
const sequence = context.getSequence();
const next = { generateNext: { token: true, probabilities: true, options: { temperature: 0 } } };

const greedy = [];
const probabilities = [];
let input = prompt.slice();
for (let i = 0; i < Number(count); i++) {
  input[input.length - 1] = [input[input.length - 1], next];
  const output = (await sequence.controlledEvaluate(input)).at(-1);
  const row = [];
  for (const [id, p] of output.next.probabilities) row[id] = p;
  greedy.push(output.next.token);
  probabilities.push(row);
  input = [output.next.token];
}
const text = model.detokenize(greedy);
fs.writeFileSync(outPath, JSON.stringify({ prompt, greedy, text, probabilities }));
await llama.dispose();
process.exit(0);
