// The site has the pages of the repository as they are: scripts/site.sh runs this beside copies of them.
import { existsSync, readdirSync, statSync } from 'node:fs'
import { dirname, join, normalize } from 'node:path'
import { fileURLToPath } from 'node:url'
import { defineConfig } from 'vitepress'

const root = process.env.VK_REPOSITORY
const pages = fileURLToPath(new URL('../pages', import.meta.url))
const repository = 'https://github.com/virtual-kubelet/virtual-kubelet'
const providers = readdirSync(join(root, 'providers')).filter((name) => existsSync(join(root, 'providers', name, 'README.md')))

const page = (text, link) => ({ text, link })
const sidebar = [
  { text: 'Operators', items: [
    page('Install', '/docs/install'), page('Managed clusters', '/docs/managed-clusters'), page('Configuration', '/docs/configuration'),
    page('Commands', '/docs/cli'), page('Identity', '/docs/identity'), page('Doctor', '/docs/doctor'), page('Status', '/docs/status'),
    page('Observability', '/docs/observability'), page('Scale', '/docs/scale'), page('Deregister', '/docs/deregister'),
    page('Releases', '/docs/release'),
  ] },
  { text: 'Provider authors', items: [
    page('Choose', '/docs/choose'), page('Write a provider', '/docs/write-a-provider'), page('podgroup', '/docs/podgroup'),
    page('podengine', '/docs/podengine'), page('Conformance kit', '/docs/providertest'), page('From the older library', '/docs/migrate'),
  ] },
  { text: 'Providers', items: [page('What each can do', '/docs/providers'), ...providers.map((name) => page(name, `/providers/${name}/README`))] },
  { text: 'Background', items: [
    page('Architecture', '/docs/architecture'), page('Kubelet API', '/docs/kubelet-api'), page('Performance', '/docs/performance'),
    page('Conformance', '/docs/conformance'),
    page('Further conformance', '/docs/conformance-more'), page('Comparison', '/docs/comparison'), page('Scope', '/SCOPE'), page('Changes', '/CHANGELOG'),
  ] },
]

const listed = new Set(sidebar.flatMap((group) => group.items.map((item) => item.link)))
for (const name of readdirSync(join(pages, 'docs'))) {
  if (name.endsWith('.md') && !listed.has(`/docs/${name.replace(/\.md$/, '')}`)) throw new Error(`docs/${name} is not in the sidebar of site/config.mjs`)
}

// adapt lets links to files that are no pages lead to the repository. A link to what does not exist stays, and
// fails the build.
function adapt(md) {
  md.core.ruler.push('repository', (state) => {
    // The theme shows only fenced code as code.
    for (const token of state.tokens) if (token.type === 'code_block') token.type = 'fence'
    for (const token of state.tokens.flatMap((t) => t.children ?? [])) {
      const href = token.type === 'link_open' && token.attrGet('href')
      if (!href || /^([a-z]+:|#|\/)/.test(href)) continue
      const path = normalize(join(dirname(state.env.relativePath), href.replace(/#.*/, '')))
      if (!statSync(join(pages, path), { throwIfNoEntry: false })?.isFile() && existsSync(join(root, path))) token.attrSet('href', `${repository}/blob/HEAD/${path}`)
    }
  })
}

export default defineConfig({
  title: 'Virtual Kubelet',
  description: 'Anything that can run a pod, as a Kubernetes node',
  srcDir: 'pages',
  outDir: 'html',
  rewrites: { 'README.md': 'index.md' },
  markdown: { config: adapt },
  themeConfig: { search: { provider: 'local' }, sidebar, nav: [page('Repository', repository)], outline: [2, 3] },
})
