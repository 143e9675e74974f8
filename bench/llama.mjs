// SPDX-License-Identifier: MIT
// Times llama.cpp (npm: node-llama-cpp, installed into $LLAMA) on a GGUF file: reading a prompt
// and COUNT greedy tokens after it. Prints one JSON object; bench/generate.py starts it.
//
//   llama.mjs MODEL.gguf PROMPT.txt COUNT THREADS
import fs from "node:fs";
import path from "node:path";
import { pathToFileURL } from "node:url";

const entry = path.join(path.resolve(process.env.LLAMA), "node_modules/node-llama-cpp/dist/index.js");
const { getLlama, LlamaLogLevel } = await import(pathToFileURL(entry).href);

const [modelPath, promptPath, count, threads] = process.argv.slice(2);
const llama = await getLlama({
  gpu: false, build: "never", skipDownload: true, progressLogs: false,
  maxThreads: Number(threads), logLevel: LlamaLogLevel.error,
});
const model = await llama.loadModel({ modelPath });
const prompt = model.tokenize(fs.readFileSync(promptPath, "utf8"));
const context = await model.createContext({
  contextSize: model.trainContextSize, batchSize: 512, threads: Number(threads),
});
const sequence = context.getSequence();

// What is read first is only to touch the memory.
for await (const token of sequence.evaluate(prompt, { temperature: 0 })) if (token >= 0) break;
await sequence.clearHistory();

const start = performance.now();
let first = 0;
let made = 0;
for await (const token of sequence.evaluate(prompt, { temperature: 0 })) {
  if (made++ === 0) first = performance.now();
  if (made === Number(count)) break;
}
const end = performance.now();
console.log(JSON.stringify({
  prompt_tokens: prompt.length,
  read_per_s: prompt.length / ((first - start) / 1000),
  tokens: made,
  wrote_per_s: (made - 1) / ((end - first) / 1000),
}));
await llama.dispose();
process.exit(0);
