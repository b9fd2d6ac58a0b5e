import { defineConfig } from "vite";

export default defineConfig({
  base: "./",
  build: {
    target: "es2022",
    // Every file is served by Thalweg itself under a policy that forbids inline code.
    assetsInlineLimit: 0,
    modulePreload: { polyfill: false },
    reportCompressedSize: true,
  },
  server: {
    // `npm run dev` beside a running server.
    proxy: { "/api": "http://127.0.0.1:7780" },
  },
});
