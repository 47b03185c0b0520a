// SPDX-License-Identifier: Apache-2.0
// iframe-worker.js: lets the search work in pages that are opened as files. Browsers start no
// worker from file://, so its script runs in a hidden frame that answers by messages as one does.
if (location.protocol === "file:") {
  window.Worker = class extends EventTarget {
    constructor(url) {
      super();
      const waiting = [];
      const frame = document.createElement("iframe");
      frame.hidden = true;
      frame.srcdoc = `<script>
        const base = ${JSON.stringify(String(new URL(url, location)))};
        window.postMessage = (data) => parent.postMessage({ ofWorker: true, data }, "*");
        window.importScripts = (...urls) => urls.reduce((before, one) => before.then(() =>
          new Promise((done, failed) => {
            const script = document.createElement("script");
            Object.assign(script, { src: new URL(one, base), onload: done, onerror: failed });
            document.head.append(script);
          })), Promise.resolve());
      <\/script><script src="${new URL(url, location)}"><\/script>`;
      frame.onload = () => {
        const inside = frame.contentWindow;
        this.post = (data) => inside.dispatchEvent(new MessageEvent("message", { data }));
        waiting.splice(0).forEach((data) => this.post(data));
      };
      this.post = (data) => waiting.push(data);
      window.addEventListener("message", (event) => {
        if (event.source === frame.contentWindow && event.data && event.data.ofWorker) {
          this.dispatchEvent(new MessageEvent("message", { data: event.data.data }));
        }
      });
      document.body.append(frame);
    }
    postMessage(data) { this.post(data); }
    terminate() {}
  };
}
